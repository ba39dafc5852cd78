// Idea:   both sums, of x and of its square, in one pass, about the channel's first element instead of zero; channels are
//         merged into groups as pairs (mean, m2).
// Parent: v02.
// Why:    x is read twice instead of three times. About zero the difference of the two sums would have no digits left for a
//         mean of many deviations; about an element of the channel it is a difference of numbers of like size. Limiter: as
//         in v02 the statistics of 64 channels are one block's.
// Needs:  nothing; single elements where c is no multiple of a vector; a workspace of two floats a channel and group of
//         every image.

#include "dev/groupnorm/columns/normalise_columns.h"

namespace ladder::groupnorm {
namespace {

template <class T, int kWidth>
__global__ void __launch_bounds__(kColumnThreads)
    groupnorm_forward_v03_kernel(Problem p, const void* x, PixelSplit full_image, float2* rows) {
  const TileOffset<T, kWidth> tile(p, full_image);
  float pivots[kWidth] = {};
  load_pivots<T>(p, tile, x, pivots);

  float2 sums[kWidth] = {};
  for_each_pixel(p, full_image, tile, x, [&](const float(&values)[kWidth]) { add_pixel(values, pivots, sums); });
  store_moments<T>(p, full_image, tile, sum_rows<T>(sums), rows);
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * p.n * (p.c + p.g); }

void launch(const Problem& p, const Forward::Tensors& t, void* workspace, Stream stream) {
  auto* const rows = static_cast<float2*>(workspace);
  float2* const normalisers = rows + std::size_t(p.n) * p.c;
  const PixelSplit full_image{.parts = 1, .pixels_per_part = p.pixels()};
  dispatch_columns(p, [&](auto element, auto width, auto act) {
    using T = decltype(element);
    constexpr int kWidth = decltype(width)::value;
    ladder::launch(groupnorm_forward_v03_kernel<T, kWidth>,
                   {.grid = column_blocks<T, kWidth>(p, full_image), .block = kColumnThreads}, stream, p, t.x,
                   full_image, rows);
    launch_output<T, kWidth, decltype(act)>(p, t, rows, normalisers, stream);
  });
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Forward, {.launch = ladder::groupnorm::launch,
                                            .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                            .supports = ladder::groupnorm::plain_inputs_only,
                                            .workspace_bytes = ladder::groupnorm::workspace_bytes,
                                            .error_growth = 2})  // where a channel begins far from its mean

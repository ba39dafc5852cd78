// Idea:   vectors of sixteen bytes across channels, and three kernels: a block takes 8 neighbouring vectors of all pixels of
//         an image and makes mean and m2 (the sum of squared distances from the mean) of each channel; a warp merges those
//         of a group; a third kernel writes the output.
// Parent: v01.
// Why:    whole lines are read, by neighbouring threads, whatever a group's width. Limiter: mean and variance still take a
//         pass each, and a block walks all pixels of 64 channels, so that 64 channels and 32 images are 32 blocks on 132
//         SMs.
// Needs:  nothing; single elements where c is no multiple of a vector; a workspace of two floats a channel and group of
//         every image.

#include "dev/groupnorm/columns/normalise_columns.h"

namespace ladder::groupnorm {
namespace {

template <class T, int kWidth>
__global__ void __launch_bounds__(kColumnThreads)
    groupnorm_forward_v02_kernel(Problem p, const void* x, PixelSplit full_image, float2* rows) {
  using Extent = ChannelTile<T, kWidth>;
  const TileOffset<T, kWidth> tile(p, full_image);
  const auto count = static_cast<float>(p.h * p.w);
  const int column = tile.c0 - tile.first_channel;
  float pivots[kWidth] = {};
  load_pivots<T>(p, tile, x, pivots);

  // Mean of each channel, about its first element.
  float2 sums[kWidth] = {};
  for_each_pixel(p, full_image, tile, x, [&](const float(&values)[kWidth]) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i].x += values[i] - pivots[i];
  });
  const float2* totals = sum_rows<T>(sums);
  float means[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) means[i] = totals[column + i].x / count;

    // m2 of each channel. x of row 0 is the mean and x of other rows 0, so that the sums over rows are pairs (mean, m2).
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sums[i] = {tile.row == 0 ? means[i] : 0.0f, 0.0f};
  for_each_pixel(p, full_image, tile, x, [&](const float(&values)[kWidth]) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float centred = values[i] - pivots[i] - means[i];
      sums[i].y = fmaf(centred, centred, sums[i].y);
    }
  });
  totals = sum_rows<T>(sums);
  float2* const out = rows + tile.image * p.c + tile.first_channel;
  for (int i = threadIdx.x; i < Extent::kChannels && tile.first_channel + i < p.c; i += kColumnThreads) {
    out[i] = totals[i];
  }
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * p.n * (p.c + p.g); }

void launch(const Problem& p, const Forward::Tensors& t, void* workspace, Stream stream) {
  auto* const rows = static_cast<float2*>(workspace);
  float2* const normalisers = rows + std::size_t(p.n) * p.c;
  const PixelSplit full_image{.parts = 1, .pixels_per_part = p.pixels()};
  dispatch_columns(p, [&](auto element, auto width, auto act) {
    using T = decltype(element);
    constexpr int kWidth = decltype(width)::value;
    ladder::launch(groupnorm_forward_v02_kernel<T, kWidth>,
                   {.grid = column_blocks<T, kWidth>(p, full_image), .block = kColumnThreads}, stream, p, t.x,
                   full_image, rows);
    dispatch_parameters<T>(p, [&](auto parameter) {
      launch_output<T, kWidth, decltype(act), decltype(parameter)>(p, t, rows, normalisers, stream);
    });
  });
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Forward, {.launch = ladder::groupnorm::launch,
                                            .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                            .supports = ladder::groupnorm::one_x_only,
                                            .workspace_bytes = ladder::groupnorm::workspace_bytes})

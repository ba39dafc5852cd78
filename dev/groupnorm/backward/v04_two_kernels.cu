// Idea:   two kernels instead of four: a block of the second adds up A and B of its own groups before it writes dx, and the
//         last blocks of its grid make dgamma and dbeta.
// Parent: v03.
// Why:    the groups' sums are a few hundred additions, and a launch costs as much as reading 4 MB; every block repeats
//         them out of L2 rather than wait for a kernel that does so once. Limiter: x and dy are read twice, with their
//         exponentials.
// Needs:  nothing; single elements where c is no multiple of a vector; a workspace of two floats a channel of every part
//         of an image.

#include "dev/groupnorm/gradient_columns.h"
#include "dev/groupnorm/parameter_sums.h"

namespace ladder::groupnorm {
namespace {

static_assert(kColumnThreads == kParameterThreads, "one grid does both");

template <class T, int kWidth, class Act>
__global__ void __launch_bounds__(kColumnThreads, 2)
    groupnorm_backward_v04_sums_kernel(Problem p, Backward::Tensors t, PixelSplit split, float2* rows) {
  sum_columns<T, kWidth, Act>(p, t, split, rows);
}

template <class T, int kWidth, class Act>
__global__ void __launch_bounds__(kColumnThreads, 2)
    groupnorm_backward_v04_dx_kernel(Problem p, Backward::Tensors t, PixelSplit split, int dx_blocks, int parts,
                                     const float2* rows) {
  using Extent = Tile<T, kWidth>;
  if (static_cast<int>(blockIdx.x) >= dx_blocks) {
    sum_parameters(rows, p.n * parts, p.c, static_cast<int>(blockIdx.x) - dx_blocks, t.dgamma, t.dbeta);
    return;
  }

  // Every group that has a channel of the tile: a warp a group.
  LADDER_SHARED(float2, group_sums, [Extent::kChannels]);
  const Place<T, kWidth> place(p, split);
  const int width = p.c / p.g;
  const int first = place.tile_channel / width;
  const int last = (min(place.tile_channel + Extent::kChannels, p.c) - 1) / width;
  for (int group = first + static_cast<int>(threadIdx.x) / 32; group <= last; group += kColumnThreads / 32) {
    const float2 ab = group_sum(p, t, parts, rows, place.image, group);
    if (threadIdx.x % 32 == 0) group_sums[group - first] = ab;
  }
  __syncthreads();
  write_columns<T, kWidth, Act>(p, t, split, [&](int group) { return group_sums[group - first]; });
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * p.n * sum_split(p).parts * p.c; }

void launch(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  auto* const rows = static_cast<float2*>(workspace);  // [n][parts][c]
  const PixelSplit sums = sum_split(p);
  dispatch_columns(p, [&](auto element, auto width, auto act) {
    using T = decltype(element);
    using Act = decltype(act);
    constexpr int kWidth = decltype(width)::value;
    const PixelSplit dx = split_pixels<T, kWidth>(p, kDxBlocks);
    const unsigned dx_blocks = column_blocks<T, kWidth>(p, dx);
    ladder::launch(groupnorm_backward_v04_sums_kernel<T, kWidth, Act>,
                   {.grid = column_blocks<T, kWidth>(p, sums), .block = kColumnThreads}, stream, p, t, sums, rows);
    ladder::launch(groupnorm_backward_v04_dx_kernel<T, kWidth, Act>,
                   {.grid = dx_blocks + (p.affine ? parameter_blocks(p.c) : 0), .block = kColumnThreads}, stream, p, t,
                   dx, static_cast<int>(dx_blocks), sums.parts, rows);
  });
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Backward, {.launch = ladder::groupnorm::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                             .supports = ladder::groupnorm::plain_only,
                                             .workspace_bytes = ladder::groupnorm::workspace_bytes})

// Idea:   the pixels of an image are split over blocks, each of which leaves the sums of its part; who needs a channel's
//         sums adds the parts up in order.
// Parent: v02.
// Why:    any problem fills the card, one image as well as 32, and an SM has two blocks to switch between. No atomics:
//         the same sums in the same order every time. Limiter: four launches, each waiting for the last block of the one
//         before it, and x and dy are read twice, with their exponentials.
// Needs:  nothing; single elements where c is no multiple of a vector; a workspace of two floats a channel of every part
//         of an image, and a group of every image.

#include "dev/groupnorm/gradient_columns.h"
#include "dev/groupnorm/parameter_gradients.h"

namespace ladder::groupnorm {
namespace {

constexpr int kWarps = 8;  // of the groups kernel

template <class T, int kWidth, class Act>
__global__ void __launch_bounds__(kColumnThreads, 2)
    groupnorm_backward_v03_sums_kernel(Problem p, Backward::Tensors t, PixelSplit split, float2* rows) {
  sum_columns<T, kWidth, Act>(p, t, split, rows);
}

__global__ void __launch_bounds__(kWarps * 32)
    groupnorm_backward_v03_groups_kernel(Problem p, Backward::Tensors t, int parts, const float2* rows,
                                         float2* group_sums) {
  const int group = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (group >= p.n * p.g) return;
  const float2 ab = group_sum(p, t, parts, rows, group / p.g, group % p.g);
  if (threadIdx.x % 32 == 0) group_sums[group] = ab;
}

template <class T, int kWidth, class Act>
__global__ void __launch_bounds__(kColumnThreads, 2)
    groupnorm_backward_v03_dx_kernel(Problem p, Backward::Tensors t, PixelSplit split, const float2* group_sums) {
  const int first_group = static_cast<int>(blockIdx.x) / split.parts / ceil_div(p.c, Tile<T, kWidth>::kChannels) * p.g;
  write_columns<T, kWidth, Act>(p, t, split, [&](int group) { return group_sums[first_group + group]; });
}

std::size_t row_count(const Problem& p) { return std::size_t(p.n) * sum_split(p).parts; }

std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * (row_count(p) * p.c + std::size_t(p.n) * p.g); }

void launch(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  auto* const rows = static_cast<float2*>(workspace);    // [n][parts][c]
  float2* const group_sums = rows + row_count(p) * p.c;  // [n][g]
  const PixelSplit sums = sum_split(p);
  const auto group_blocks = static_cast<unsigned>(ceil_div(p.n * p.g, kWarps));
  dispatch_columns(p, [&](auto element, auto width, auto act) {
    using T = decltype(element);
    using Act = decltype(act);
    constexpr int kWidth = decltype(width)::value;
    const PixelSplit dx = split_pixels<T, kWidth>(p, kDxBlocks);
    ladder::launch(groupnorm_backward_v03_sums_kernel<T, kWidth, Act>,
                   {.grid = column_blocks<T, kWidth>(p, sums), .block = kColumnThreads}, stream, p, t, sums, rows);
    ladder::launch(groupnorm_backward_v03_groups_kernel, {.grid = group_blocks, .block = kWarps * 32}, stream, p, t,
                   sums.parts, rows, group_sums);
    ladder::launch(groupnorm_backward_v03_dx_kernel<T, kWidth, Act>,
                   {.grid = column_blocks<T, kWidth>(p, dx), .block = kColumnThreads}, stream, p, t, dx, group_sums);
  });
  launch_parameters(p, rows, static_cast<int>(row_count(p)), t, stream);
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Backward, {.launch = ladder::groupnorm::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                             .supports = ladder::groupnorm::plain_only,
                                             .workspace_bytes = ladder::groupnorm::workspace_bytes})

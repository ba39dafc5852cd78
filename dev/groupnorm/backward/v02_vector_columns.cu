// Idea:   vectors of sixteen bytes, and the sums of each channel of an image as the only intermediate: A and B are sums of
//         them over a group's channels, dgamma and dbeta over the images.
// Parent: v01.
// Why:    whole lines are read, by neighbouring threads, twice instead of three times in pieces; the channels' sums cost
//         the derivative no further time. Limiter: a block sums all pixels of 64 channels of an image, so that 64 channels
//         and 32 images are 32 blocks on 132 SMs.
// Needs:  nothing; single elements where c is no multiple of a vector; a workspace of two floats a channel and group of
//         every image.

#include "dev/groupnorm/columns/gradient_columns.h"
#include "dev/groupnorm/parameter_gradients.h"

namespace ladder::groupnorm {
namespace {

constexpr int kWarps = 8;  // of the groups kernel

template <class T, int kWidth, class Act, class P>
__global__ void __launch_bounds__(kColumnThreads, 2)
    groupnorm_backward_v02_sums_kernel(Problem p, Backward::Tensors t, PixelSplit split, float2* rows) {
  sum_columns<T, kWidth, Act, P>(p, t, split, rows);
}

template <class P>
__global__ void __launch_bounds__(kWarps * 32)
    groupnorm_backward_v02_groups_kernel(Problem p, Backward::Tensors t, const float2* rows, float2* group_sums) {
  const int group = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (group >= p.n * p.g) return;
  const float2 ab = group_sum<P>(p, t, 1, rows, group / p.g, group % p.g);
  if (threadIdx.x % 32 == 0) group_sums[group] = ab;
}

template <class T, int kWidth, class Act, class P>
__global__ void __launch_bounds__(kColumnThreads, 2)
    groupnorm_backward_v02_dx_kernel(Problem p, Backward::Tensors t, PixelSplit split, const float2* group_sums) {
  const int first_group =
      static_cast<int>(blockIdx.x) / split.parts / ceil_div(p.c, ChannelTile<T, kWidth>::kChannels) * p.g;
  write_columns<T, kWidth, Act, P>(p, t, split, [&](int group) { return group_sums[first_group + group]; });
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * p.n * (p.c + p.g); }

void launch(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  auto* const rows = static_cast<float2*>(workspace);        // [n][c]
  float2* const group_sums = rows + std::size_t(p.n) * p.c;  // [n][g]
  const PixelSplit full_image{.parts = 1, .pixels_per_part = p.h * p.w};
  constexpr int kDxPixels = 256;
  const PixelSplit split{.parts = ceil_div(p.h * p.w, kDxPixels), .pixels_per_part = kDxPixels};
  const auto group_blocks = static_cast<unsigned>(ceil_div(p.n * p.g, kWarps));
  dispatch_columns(p, [&](auto element, auto width, auto act) {
    using T = decltype(element);
    using Act = decltype(act);
    constexpr int kWidth = decltype(width)::value;
    dispatch_parameters<T>(p, [&](auto parameter) {
      using P = decltype(parameter);
      ladder::launch(groupnorm_backward_v02_sums_kernel<T, kWidth, Act, P>,
                     {.grid = column_blocks<T, kWidth>(p, full_image), .block = kColumnThreads}, stream, p, t,
                     full_image, rows);
      ladder::launch(groupnorm_backward_v02_groups_kernel<P>, {.grid = group_blocks, .block = kWarps * 32}, stream, p,
                     t, rows, group_sums);
      ladder::launch(groupnorm_backward_v02_dx_kernel<T, kWidth, Act, P>,
                     {.grid = column_blocks<T, kWidth>(p, split), .block = kColumnThreads}, stream, p, t, split,
                     group_sums);
    });
  });
  launch_parameters(p, rows, p.n, t, stream);
}

const char* supports(const Problem& p) {
  const char* const why = plain_dx_only(p);
  return why ? why : one_x_only(p);
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Backward, {.launch = ladder::groupnorm::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                             .supports = ladder::groupnorm::supports,
                                             .workspace_bytes = ladder::groupnorm::workspace_bytes})

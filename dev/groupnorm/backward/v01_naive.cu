// Idea:   a block a group of an image sums A and B, then writes its dx; a second kernel has a block a channel for dgamma
//         and dbeta, and a third one a block a channel of an image for the sum of dx. One element at a time.
// Parent: none.
// Why:    the formulas as they stand. Limiter: a group's elements are runs of c/g channels, a few bytes of each 32-byte
//         sector, fetched anew for the sums, for dx and for the channels, each time with its exponential.
// Needs:  nothing.

#include "dev/groupnorm/gradient_terms.h"
#include "dev/groupnorm/parts_of_x.h"

namespace ladder::groupnorm {
namespace {

constexpr int kThreads = 256;  // at most

// A power of two: no more than there are elements, but for a whole warp.
unsigned threads_for(int elements) {
  unsigned threads = 32;
  while (threads < kThreads && static_cast<int>(threads) < elements) threads *= 2;
  return threads;
}

// The block's sum, in every thread: halves are added to halves.
__device__ __forceinline__ float2 block_sum(float2 value) {
  LADDER_SHARED(float2, sums, [kThreads]);
  sums[threadIdx.x] = value;
  for (int half = static_cast<int>(blockDim.x) / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) {
      sums[threadIdx.x].x += sums[threadIdx.x + half].x;
      sums[threadIdx.x].y += sums[threadIdx.x + half].y;
    }
  }
  __syncthreads();
  return sums[0];
}

template <class T>
__device__ __forceinline__ float load_x(const Problem& p, const Backward::Tensors& t, int pixel, int channel) {
  return to_float(*column_of_x<T>(p, t, channel).pixel_ptr(pixel));
}

template <class T, class Act, class P>
__global__ void __launch_bounds__(kThreads)
    groupnorm_backward_v01_dx_kernel(Problem p, Backward::Tensors t, float2* sums) {
  const auto* const dy = static_cast<const T*>(t.dy);
  const int image = blockIdx.x / p.g;
  const int group = blockIdx.x % p.g;
  const int channels_per_group = p.c / p.g;
  const int m = p.h * p.w * channels_per_group;

  float2 ab{0, 0};
  for (int i = threadIdx.x; i < m; i += blockDim.x) {
    const int c = group * channels_per_group + i % channels_per_group;
    const int offset = (image * p.h * p.w + i / channels_per_group) * p.c + c;
    const Channel channel = channel_of<P>(p, t, image, c);
    float2 term{0, 0};
    add_terms<Act>(channel, load_x<T>(p, t, image * p.h * p.w + i / channels_per_group, c), to_float(dy[offset]), term);
    ab.x = fmaf(gamma_of<P>(t, c), term.x, ab.x);
    ab.y = fmaf(channel.scale, term.y, ab.y);
  }
  ab = block_sum(ab);
  if (sums && threadIdx.x == 0) sums[blockIdx.x] = ab;
  const Correction correction = correction_of(t.rstd[blockIdx.x], ab, 1.0f / static_cast<float>(m));

  for (int i = threadIdx.x; i < m; i += blockDim.x) {
    const int c = group * channels_per_group + i % channels_per_group;
    const int offset = (image * p.h * p.w + i / channels_per_group) * p.c + c;
    const Channel channel = channel_of<P>(p, t, image, c);
    float dx = dx_of(channel, correction, load_x<T>(p, t, image * p.h * p.w + i / channels_per_group, c),
                     to_float(dy[offset]), Act{});
    if (t.addend) dx += to_float(static_cast<const T*>(t.addend)[offset]);
    if (t.addend2) dx += to_float(static_cast<const T*>(t.addend2)[offset]);
    static_cast<T*>(t.dx)[offset] = from_float<T>(dx);
  }
}

// dx anew, before it was rounded, from the groups' sums.
template <class T, class Act, class P>
__global__ void __launch_bounds__(kThreads)
    groupnorm_backward_v01_embedding_kernel(Problem p, Backward::Tensors t, const float2* sums) {
  const int image = blockIdx.x / p.c;
  const int c = blockIdx.x % p.c;
  const int group = image * p.g + c / (p.c / p.g);
  const Channel channel = channel_of<P>(p, t, image, c);
  const float inverse_m = 1.0f / static_cast<float>(p.h * p.w * (p.c / p.g));
  const Correction correction = correction_of(channel.rstd, sums[group], inverse_m);
  float2 sum{0, 0};
  for (int pixel = threadIdx.x; pixel < p.h * p.w; pixel += blockDim.x) {
    const int offset = (image * p.h * p.w + pixel) * p.c + c;
    const float x = load_x<T>(p, t, image * p.h * p.w + pixel, c);
    sum.x += dx_of(channel, correction, x, to_float(static_cast<const T*>(t.dy)[offset]), Act{});
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) t.de[image * p.embedding + p.first + c] = sum.x;
}

template <class T, class Act, class P>
__global__ void __launch_bounds__(kThreads) groupnorm_backward_v01_parameters_kernel(Problem p, Backward::Tensors t) {
  constexpr int kRun = 16;  // pixels summed apart: a chain of hundreds loses more than a library's sums do
  const int c = blockIdx.x;
  const int pixels = p.n * p.h * p.w;
  float2 sums{0, 0};
  for (int pixel = threadIdx.x; pixel < pixels;) {
    float2 run{0, 0};
    for (int i = 0; i < kRun && pixel < pixels; ++i, pixel += blockDim.x) {
      const Channel channel = channel_of<P>(p, t, pixel / (p.h * p.w), c);
      const int offset = pixel * p.c + c;
      float2 term{0, 0};
      add_terms<Act>(channel, load_x<T>(p, t, pixel, c), to_float(static_cast<const T*>(t.dy)[offset]), term);
      run.x += term.x;
      run.y = fmaf(channel.rstd, term.y, run.y);
    }
    sums.x += run.x;
    sums.y += run.y;
  }
  sums = block_sum(sums);
  if (threadIdx.x > 0) return;
  store_parameter<P>(t.dbeta, c, sums.x);
  store_parameter<P>(t.dgamma, c, sums.y);
}

std::size_t workspace_bytes(const Problem& p) { return p.embedding == 0 ? 0 : sizeof(float2) * p.n * p.g; }

void launch(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  auto* const sums = p.embedding == 0 ? nullptr : static_cast<float2*>(workspace);  // [n, g], A and B
  dispatch_all_types(p, [&](auto element, auto act, auto parameter) {
    using T = decltype(element);
    using Act = decltype(act);
    using P = decltype(parameter);
    ladder::launch(groupnorm_backward_v01_dx_kernel<T, Act, P>,
                   {.grid = static_cast<unsigned>(p.n) * p.g, .block = threads_for(static_cast<int>(p.group_size()))},
                   stream, p, t, sums);
    if (sums) {
      ladder::launch(groupnorm_backward_v01_embedding_kernel<T, Act, P>,
                     {.grid = static_cast<unsigned>(p.n) * p.c, .block = threads_for(p.pixels())}, stream, p, t, sums);
    }
    if (!p.affine) return;
    ladder::launch(groupnorm_backward_v01_parameters_kernel<T, Act, P>,
                   {.grid = static_cast<unsigned>(p.c), .block = threads_for(p.n * p.pixels())}, stream, p, t);
  });
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Backward, {.launch = ladder::groupnorm::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                             .workspace_bytes = ladder::groupnorm::workspace_bytes})

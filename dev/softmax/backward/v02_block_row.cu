// Idea:   one block computes one row, in two passes over it: the sum of y dy, then dx. Sixteen bytes a load.
// Parent: v01.
// Why:    neighbouring threads load neighbouring elements, and a row has 256 threads. Limiter: memory, which moves y and dy
//         twice where all SMs' rows are more than the L2 holds.
// Needs:  nothing; single elements where rows are no whole vectors of sixteen bytes.

#include "dev/common/wide.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/softmax/max_sum.h"
#include "dev/softmax/softmax.h"

namespace ladder::softmax {
namespace {

constexpr int kThreads = 256;

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) softmax_backward_v02_kernel(Problem p, const T* y, const T* dy, T* dx) {
  LADDER_SHARED(float, warp_sums, [kThreads / 32]);
  const int thread = static_cast<int>(threadIdx.x);
  const int vectors = p.n / kWidth;
  const std::int64_t first = std::int64_t{blockIdx.x} * p.n;
  y += first, dy += first, dx += first;
  float probabilities[kWidth];
  float gradients[kWidth];
  ptx::grid_dependency_wait();

  // The row's sum, each warp adding up all warps' sums in the same order.
  float sum = 0;
#pragma unroll 2
  for (int i = thread; i < vectors; i += kThreads) {
    to_floats<T, kWidth>(load_wide<kWidth>(y, i), probabilities);
    to_floats<T, kWidth>(load_wide<kWidth>(dy, i), gradients);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) sum += probabilities[v] * gradients[v];
  }
  sum = add_over_lanes(sum);
  if (thread % 32 == 0) warp_sums[thread / 32] = sum;
  __syncthreads();
  sum = add_over_lanes(warp_sums[thread % (kThreads / 32)], kThreads / 32);

#pragma unroll 2
  for (int i = thread; i < vectors; i += kThreads) {
    to_floats<T, kWidth>(load_wide<kWidth>(y, i), probabilities);
    to_floats<T, kWidth>(load_wide<kWidth>(dy, i), gradients);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) gradients[v] = probabilities[v] * (gradients[v] - sum);
    store_wide<kWidth>(dx, i, from_floats<T, kWidth>(gradients));
  }
  ptx::grid_dependency_launch();
}

void launch(const Problem& p, const Backward::Tensors& t, void*, Stream stream) {
  dispatch_width(p.dtype, whole_vectors(p.n, p.dtype), [&](auto element, auto width) {
    using T = decltype(element);
    ladder::launch(softmax_backward_v02_kernel<T, width>,
                   {.grid = static_cast<unsigned>(p.m), .block = kThreads, .overlaps_previous = true}, stream, p,
                   static_cast<const T*>(t.y), static_cast<const T*>(t.dy), static_cast<T*>(t.dx));
  });
}

}  // namespace
}  // namespace ladder::softmax

LADDER_VERSION(ladder::softmax::Backward, {.launch = ladder::softmax::launch,
                                           .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

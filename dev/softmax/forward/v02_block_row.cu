// Idea:   one block computes one row, in three passes over it: max, sum, quotients.
// Parent: v01.
// Why:    neighbouring threads load neighbouring elements, and a row has 256 threads. Limiter: memory, which moves x three
//         times where all SMs' rows are more than the L2 holds; each thread has one element of 2 or 4 bytes in flight.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/softmax/max_sum.h"
#include "dev/softmax/softmax.h"

namespace ladder::softmax {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) softmax_forward_v02_kernel(Problem p, const T* x, T* y) {
  LADDER_SHARED(float, warp_values, [2][kThreads / 32]);
  const int thread = static_cast<int>(threadIdx.x);
  x += std::int64_t{blockIdx.x} * p.n;
  y += std::int64_t{blockIdx.x} * p.n;
  ptx::grid_dependency_wait();

  // The row's max.
  float max = -FLT_MAX;
  for (int i = thread; i < p.n; i += kThreads) max = fmaxf(max, to_float(x[i]));
  max = max_over_lanes(max);
  if (thread % 32 == 0) warp_values[0][thread / 32] = max;
  __syncthreads();
  max = max_over_lanes(warp_values[0][thread % (kThreads / 32)]);

  // The row's sum, each warp adding up all warps' sums in the same order.
  float sum = 0;
  for (int i = thread; i < p.n; i += kThreads) sum += exponential(to_float(x[i]), max);
  sum = add_over_lanes(sum);
  if (thread % 32 == 0) warp_values[1][thread / 32] = sum;
  __syncthreads();
  sum = add_over_lanes(warp_values[1][thread % (kThreads / 32)], kThreads / 32);

  // The quotients.
  const float scale = 1.0f / sum;
  for (int i = thread; i < p.n; i += kThreads) y[i] = from_float<T>(exponential(to_float(x[i]), max) * scale);
  ptx::grid_dependency_launch();
}

void launch(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    ladder::launch(softmax_forward_v02_kernel<T>,
                   {.grid = static_cast<unsigned>(p.m), .block = kThreads, .overlaps_previous = true}, stream, p,
                   static_cast<const T*>(t.x), static_cast<T*>(t.y));
  });
}

}  // namespace
}  // namespace ladder::softmax

LADDER_VERSION(ladder::softmax::Forward, {.launch = ladder::softmax::launch,
                                          .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

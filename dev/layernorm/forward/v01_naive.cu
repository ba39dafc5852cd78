// Idea:   a block a row: one pass for the mean, one for the variance, one for the output, one element at a time, sums by a
//         tree in shared memory.
// Parent: none.
// Why:    the formulas as they stand. Limiter: a row is fetched three times, 4 bytes a thread in flight; a row of a few
//         hundred elements leaves most of a block idle, and sixteen rows leave most of a card idle.
// Needs:  nothing.

#include "dev/layernorm/rows.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::layernorm {
namespace {

constexpr int kThreads = 256;

// Returns the sum over the block to every thread. Halves are added to halves.
__device__ __forceinline__ float block_sum(float value) {
  LADDER_SHARED(float, sums, [kThreads]);
  __syncthreads();  // the last sum has been read
  sums[threadIdx.x] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  __syncthreads();
  return sums[0];
}

template <class T>
__global__ void __launch_bounds__(kThreads) layernorm_forward_v01_kernel(Problem p, Forward::Tensors t) {
  const int row = blockIdx.x;
  const auto* const x = static_cast<const T*>(t.x) + static_cast<std::int64_t>(row) * p.n;
  auto* const y = static_cast<T*>(t.y) + static_cast<std::int64_t>(row) * p.n;
  const auto count = static_cast<float>(p.n);
  ptx::grid_dependency_wait();

  // Mean, about the first element (rows.h says why).
  Normaliser s{.pivot = to_float(x[0])};
  float sum = 0;
  for (int i = threadIdx.x; i < p.n; i += kThreads) sum += to_float(x[i]) - s.pivot;
  s.delta = block_sum(sum) / count;

  // Variance, about the mean.
  float squares = 0;
  for (int i = threadIdx.x; i < p.n; i += kThreads) {
    const float centred = to_float(x[i]) - s.pivot - s.delta;
    squares = fmaf(centred, centred, squares);
  }
  s.rstd = rsqrtf(block_sum(squares) / count + p.eps);

  // Output.
  for (int i = threadIdx.x; i < p.n; i += kThreads) {
    y[i] = from_float<T>(fmaf((to_float(x[i]) - s.pivot - s.delta) * s.rstd, t.gamma[i], t.beta[i]));
  }
  ptx::grid_dependency_launch();
  if (threadIdx.x == 0) store_statistics(t, row, s);
}

void launch(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    ladder::launch(layernorm_forward_v01_kernel<decltype(element)>,
                   {.grid = static_cast<unsigned>(p.m), .block = kThreads, .overlaps_previous = true}, stream, p, t);
  });
}

}  // namespace
}  // namespace ladder::layernorm

LADDER_VERSION(ladder::layernorm::Forward, {.launch = ladder::layernorm::launch,
                                            .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

// Idea:   a block a row sums A and B, then writes its dx; a second kernel has a thread a column for dgamma and dbeta. One
//         element at a time.
// Parent: none.
// Why:    the formulas as they stand. Limiter: x and dy are fetched three times, 4 bytes a thread in flight, and a column's
//         thread adds up all rows one after the other.
// Needs:  nothing.

#include "dev/layernorm/gradient.h"
#include "dev/layernorm/row_sum.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::layernorm {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) layernorm_backward_v01_dx_kernel(Problem p, Backward::Tensors t) {
  LADDER_SHARED(float2, parts, [kThreads / 32]);
  const int row = blockIdx.x;
  const std::int64_t start = static_cast<std::int64_t>(row) * p.n;
  const auto* const x = static_cast<const T*>(t.x) + start;
  const auto* const dy = static_cast<const T*>(t.dy) + start;
  ptx::grid_dependency_wait();
  const RowStatistics s = statistics_of(t, row);

  float2 ab{0, 0};
  for (int i = threadIdx.x; i < p.n; i += kThreads) {
    add_terms(t.gamma[i] * to_float(dy[i]), xhat_of(to_float(x[i]), s), ab);
  }
  ab = sum_row<kThreads>(ab, parts);
  const float2 means{ab.x / static_cast<float>(p.n), ab.y / static_cast<float>(p.n)};

  for (int i = threadIdx.x; i < p.n; i += kThreads) {
    const float dx = dx_of(t.gamma[i] * to_float(dy[i]), xhat_of(to_float(x[i]), s), s, means);
    static_cast<T*>(t.dx)[start + i] = from_float<T>(dx);
  }
  ptx::grid_dependency_launch();
}

template <class T>
__global__ void __launch_bounds__(kThreads) layernorm_backward_v01_parameters_kernel(Problem p, Backward::Tensors t) {
  constexpr int kRun = 16;  // rows summed apart: a chain of thousands loses more than a library's sums do
  const int column = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  ptx::grid_dependency_wait();
  float2 sums{0, 0};  // dbeta, dgamma
  for (int row = 0; row < p.m && column < p.n;) {
    float2 run{0, 0};
    for (int i = 0; i < kRun && row < p.m; ++i, ++row) {
      const std::int64_t index = static_cast<std::int64_t>(row) * p.n + column;
      const float dy = to_float(static_cast<const T*>(t.dy)[index]);
      add_terms(dy, xhat_of(to_float(static_cast<const T*>(t.x)[index]), statistics_of(t, row)), run);
    }
    sums.x += run.x;
    sums.y += run.y;
  }
  ptx::grid_dependency_launch();
  if (column >= p.n) return;
  t.dbeta[column] = sums.x;
  t.dgamma[column] = sums.y;
}

void launch(const Problem& p, const Backward::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    ladder::launch(layernorm_backward_v01_dx_kernel<T>,
                   {.grid = static_cast<unsigned>(p.m), .block = kThreads, .overlaps_previous = true}, stream, p, t);
    ladder::launch(
        layernorm_backward_v01_parameters_kernel<T>,
        {.grid = static_cast<unsigned>(ceil_div(p.n, kThreads)), .block = kThreads, .overlaps_previous = true}, stream,
        p, t);
  });
}

}  // namespace
}  // namespace ladder::layernorm

LADDER_VERSION(ladder::layernorm::Backward, {.launch = ladder::layernorm::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

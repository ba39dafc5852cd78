// Idea:   one thread computes one element of one layer's dw (or dbias), straight from the formula, over all rows.
// Parent: none.
// Why:    it is the definition, in the fewest lines: wgrad's v01, with the layers side by side in one grid. Limiter: every
//         thread walks every row, waiting for two loads a multiply-add.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/gemm/concat_operand.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::gemm {
namespace {

constexpr int kThreads = 64;
constexpr int kRowsOfASum = 256;  // a single fp32 sum of 131072 terms would lose three digits

template <class T>
__global__ void gemm_wgrad_batch_v01_kernel(Problem p, WgradBatch::Tensors t) {
  ptx::grid_dependency_wait();
  const long long index = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  const long long weights = static_cast<long long>(p.n) * p.k;
  if (index >= weights + (p.bias ? p.n : 0)) return;
  const int layer = blockIdx.y;
  const ConcatOperand<const T> x{static_cast<const T*>(t.x[layer]), static_cast<const T*>(t.x_rest[layer]),
                                 p.split > 0 ? p.split : p.k};
  const T* const dy = static_cast<const T*>(t.dy[layer]);
  // dbias is a further column of dw: its x is one.
  const bool is_bias = index >= weights;
  const int n = static_cast<int>(is_bias ? index - weights : index / p.k);
  const int k = static_cast<int>(index % p.k);

  float sum = 0;
  for (int first = 0; first < p.m; first += kRowsOfASum) {
    float part = 0;
    for (long long m = first; m < min(p.m, first + kRowsOfASum); ++m) {
      const float gradient = to_float(dy[m * p.n + n]);
      part += is_bias ? gradient : gradient * to_float(*element_at(x, m, k, p.k));
    }
    sum += part;
  }
  if (is_bias) {
    t.dbias[layer][n] = sum;
  } else {
    static_cast<T*>(t.dw[layer])[index] = from_float<T>(sum);
  }
}

void launch(const Problem& p, const WgradBatch::Tensors& t, void*, Stream stream) {
  const long long sums = static_cast<long long>(p.n) * p.k + p.n;
  const dim3 grid(static_cast<unsigned>((sums + kThreads - 1) / kThreads), static_cast<unsigned>(p.batch));
  with_storage_type(p.dtype, [&](auto element) {
    ladder::launch(gemm_wgrad_batch_v01_kernel<decltype(element)>,
                   {.grid = grid, .block = kThreads, .overlaps_previous = true}, stream, p, t);
  });
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::WgradBatch, {.launch = ladder::gemm::launch,
                                          .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

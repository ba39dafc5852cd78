// Idea:   one thread computes one element of dw (or of dbias), straight from the formula, over all rows.
// Parent: none.
// Why:    it is the definition, in the fewest lines. Sums of 256 rows are kept apart, for a single fp32 sum of 131072 terms
//         would lose three digits. Limiter: n k threads are all the parallelism there is, and each walks every row,
//         waiting for two loads a multiply-add.
// Needs:  nothing.

#include "dev/common/parameter_type.h"
#include "dev/gemm/concat_operand.h"

namespace ladder::gemm {
namespace {

constexpr int kThreads = 64;  // few threads in all: small blocks spread them over more SMs
constexpr int kRowsOfASum = 256;

template <class T, class P>
__global__ void gemm_wgrad_v01_kernel(Problem p, ConcatOperand<const T> x, const T* dy, T* dw, P* dbias) {
  const long long index = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  const long long weights = static_cast<long long>(p.n) * p.k;
  if (index >= weights + (dbias ? p.n : 0)) return;
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
    dbias[n] = from_float<P>(sum);
  } else {
    dw[index] = from_float<T>(sum);
  }
}

void launch(const Problem& p, const Wgrad::Tensors& t, void*, Stream stream) {
  const long long sums = static_cast<long long>(p.n) * p.k + p.n;
  const auto blocks = static_cast<unsigned>((sums + kThreads - 1) / kThreads);
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    with_parameter_type<T>(p.params16, [&](auto parameter) {
      using P = decltype(parameter);
      ladder::launch(gemm_wgrad_v01_kernel<T, P>, {.grid = blocks, .block = kThreads}, stream, p, input_of<T>(p, t),
                     static_cast<const T*>(t.dy), static_cast<T*>(t.dw), typed<P>(t.dbias));
    });
  });
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Wgrad, {.launch = ladder::gemm::launch,
                                     .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

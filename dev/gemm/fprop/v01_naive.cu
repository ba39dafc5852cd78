// Idea:   one thread computes one output element, straight from the formula.
// Parent: none.
// Why:    it is the definition, in the fewest lines; every other version is measured against it and may be debugged
//         against it. Limiter: neighbouring threads hold neighbouring output features, so each of a warp's 32 weight
//         loads touches a row of its own: 32 cache lines for 32 multiply-adds.
// Needs:  nothing.

#include "dev/gemm/concat_operand.h"

namespace ladder::gemm {
namespace {

constexpr int kThreads = 256;

template <class T, class P>
__global__ void gemm_fprop_v01_kernel(Problem p, ConcatOperand<const T> x, const T* w, Epilogue<T, P> epilogue, T* y) {
  const long long index = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  if (index >= static_cast<long long>(p.m) * p.n) return;
  const int n = static_cast<int>(index % p.n);
  const long long m = index / p.n;
  const T* w_row = w + static_cast<long long>(n) * p.k;

  float sum = 0;
  for (int k = 0; k < p.k; ++k) sum += to_float(*element_at(x, m, k, p.k)) * to_float(w_row[k]);
  y[index] = from_float<T>(epilogue(sum, n, index));
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  const auto blocks = static_cast<unsigned>((static_cast<long long>(p.m) * p.n + kThreads - 1) / kThreads);
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    with_parameter_type<T>(p.params16, [&](auto parameter) {
      using P = decltype(parameter);
      ladder::launch(gemm_fprop_v01_kernel<T, P>, {.grid = blocks, .block = kThreads}, stream, p, input_of<T>(p, t),
                     static_cast<const T*>(t.w), epilogue_of<T, P>(p, t), static_cast<T*>(t.y));
    });
  });
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Fprop, {.launch = ladder::gemm::launch,
                                     .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

// Idea:   one thread computes one element of dx, straight from the formula.
// Parent: none.
// Why:    it is the definition, in the fewest lines. Neighbouring threads hold neighbouring input features, which lie side
//         by side in w: its loads coalesce. Limiter: two loads through L1 for every multiply-add.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/gemm/concat_operand.h"

namespace ladder::gemm {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void gemm_dgrad_v01_kernel(Problem p, const T* dy, const T* w, const T* r, ConcatOperand<T> dx) {
  const long long index = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  if (index >= static_cast<long long>(p.m) * p.k) return;
  const T* dy_row = dy + index / p.k * p.n;
  const T* w_column = w + index % p.k;

  float sum = 0;
  for (int n = 0; n < p.n; ++n) sum += to_float(dy_row[n]) * to_float(w_column[static_cast<long long>(n) * p.k]);
  *element_at(dx, index / p.k, static_cast<int>(index % p.k), p.k) = from_float<T>(r ? sum + to_float(r[index]) : sum);
}

void launch(const Problem& p, const Dgrad::Tensors& t, void*, Stream stream) {
  const auto blocks = static_cast<unsigned>((static_cast<long long>(p.m) * p.k + kThreads - 1) / kThreads);
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    ladder::launch(gemm_dgrad_v01_kernel<T>, {.grid = blocks, .block = kThreads}, stream, p,
                   static_cast<const T*>(t.dy), static_cast<const T*>(t.w), static_cast<const T*>(t.r),
                   output_of<T>(p, t));
  });
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Dgrad, {.launch = ladder::gemm::launch,
                                     .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

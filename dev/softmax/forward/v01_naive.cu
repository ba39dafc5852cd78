// Idea:   one thread computes one row: its max, then the sum of its exponentials, then each quotient.
// Parent: none.
// Why:    it is the definition. Limiter: neighbouring threads load elements of different rows, a line of 128 bytes for each.
// Needs:  nothing.

#include <cfloat>

#include "core/numeric.h"
#include "dev/common/wide.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/softmax/compensated_sum.h"
#include "dev/softmax/softmax.h"

namespace ladder::softmax {
namespace {

constexpr int kThreads = 64;

template <class T>
__global__ void softmax_forward_v01_kernel(Problem p, const T* x, T* y) {
  const int row = blockIdx.x * kThreads + threadIdx.x;
  if (row >= p.m) return;
  ptx::grid_dependency_wait();
  x += std::int64_t{row} * p.n;
  y += std::int64_t{row} * p.n;
  float max = -FLT_MAX;
  for (int i = 0; i < p.n; ++i) max = fmaxf(max, to_float(x[i]));
  CompensatedSum exponentials;
  for (int i = 0; i < p.n; ++i) exponentials.add(expf(to_float(x[i]) - max));
  for (int i = 0; i < p.n; ++i) y[i] = from_float<T>(expf(to_float(x[i]) - max) / exponentials.sum);
  ptx::grid_dependency_launch();
}

void launch(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    ladder::launch(softmax_forward_v01_kernel<T>,
                   {.grid = stream_blocks(p.m, kThreads, 1), .block = kThreads, .overlaps_previous = true}, stream, p,
                   static_cast<const T*>(t.x), static_cast<T*>(t.y));
  });
}

}  // namespace
}  // namespace ladder::softmax

LADDER_VERSION(ladder::softmax::Forward, {.launch = ladder::softmax::launch,
                                          .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

// Idea:   one thread computes one row: the sum of y dy, then each element.
// Parent: none.
// Why:    it is the definition. Limiter: neighbouring threads load elements of different rows, a line of 128 bytes for each.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/common/wide.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/softmax/compensated_sum.h"
#include "dev/softmax/softmax.h"

namespace ladder::softmax {
namespace {

constexpr int kThreads = 64;

template <class T>
__global__ void softmax_backward_v01_kernel(Problem p, const T* y, const T* dy, T* dx) {
  const int row = blockIdx.x * kThreads + threadIdx.x;
  if (row >= p.m) return;
  ptx::grid_dependency_wait();
  const std::int64_t first = std::int64_t{row} * p.n;
  y += first, dy += first, dx += first;
  CompensatedSum products;
  for (int i = 0; i < p.n; ++i) products.add(to_float(y[i]) * to_float(dy[i]));
  for (int i = 0; i < p.n; ++i) dx[i] = from_float<T>(to_float(y[i]) * (to_float(dy[i]) - products.sum));
  ptx::grid_dependency_launch();
}

void launch(const Problem& p, const Backward::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    ladder::launch(softmax_backward_v01_kernel<T>,
                   {.grid = stream_blocks(p.m, kThreads, 1), .block = kThreads, .overlaps_previous = true}, stream, p,
                   static_cast<const T*>(t.y), static_cast<const T*>(t.dy), static_cast<T*>(t.dx));
  });
}

}  // namespace
}  // namespace ladder::softmax

LADDER_VERSION(ladder::softmax::Backward, {.launch = ladder::softmax::launch,
                                           .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

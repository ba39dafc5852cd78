// Idea:   one thread computes one element, straight from the formula.
// Parent: none.
// Why:    it is the definition. Limiter: 2 or 4 bytes in flight a thread, too few to keep memory busy.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/common/wide.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/silu/silu.h"

namespace ladder::silu {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void silu_forward_v01_kernel(unsigned count, const T* x, T* y) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= count) return;
  ptx::grid_dependency_wait();
  const float value = to_float(x[index]);
  ptx::grid_dependency_launch();
  y[index] = from_float<T>(value / (1.0f + expf(-value)));
}

void launch(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    ladder::launch(silu_forward_v01_kernel<T>,
                   {.grid = stream_blocks(p.elements(), kThreads, 1), .block = kThreads, .overlaps_previous = true},
                   stream, p.elements(), static_cast<const T*>(t.x), static_cast<T*>(t.y));
  });
}

}  // namespace
}  // namespace ladder::silu

LADDER_VERSION(ladder::silu::Forward, {.launch = ladder::silu::launch,
                                       .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

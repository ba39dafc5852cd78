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
__global__ void silu_backward_v01_kernel(unsigned count, const T* x, const T* dy, T* dx) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= count) return;
  ptx::grid_dependency_wait();
  const float value = to_float(x[index]);
  const float s = 1.0f / (1.0f + expf(-value));
  ptx::grid_dependency_launch();
  dx[index] = from_float<T>(to_float(dy[index]) * (s + value * s * (1.0f - s)));
}

void launch(const Problem& p, const Backward::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    ladder::launch(silu_backward_v01_kernel<T>,
                   {.grid = stream_blocks(p.elements(), kThreads, 1), .block = kThreads, .overlaps_previous = true},
                   stream, p.elements(), static_cast<const T*>(t.x), static_cast<const T*>(t.dy),
                   static_cast<T*>(t.dx));
  });
}

}  // namespace
}  // namespace ladder::silu

LADDER_VERSION(ladder::silu::Backward, {.launch = ladder::silu::launch,
                                        .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

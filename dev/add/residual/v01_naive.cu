// Idea:   one thread computes one element, straight from the formula.
// Parent: none.
// Why:    it is the definition. Limiter: 2 or 4 bytes in flight a thread, too few to keep memory busy.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/add/add.h"
#include "dev/common/wide.h"

namespace ladder::add {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void add_residual_v01_kernel(unsigned count, const T* a, const T* b, T* y) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  if (index < count) y[index] = from_float<T>(to_float(a[index]) + to_float(b[index]));
}

void launch(const Problem& p, const Residual::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    ladder::launch(add_residual_v01_kernel<T>, {.grid = stream_blocks(p.elements(), kThreads, 1), .block = kThreads},
                   stream, p.elements(), static_cast<const T*>(t.a), static_cast<const T*>(t.b), static_cast<T*>(t.y));
  });
}

}  // namespace
}  // namespace ladder::add

LADDER_VERSION(ladder::add::Residual,
               {.launch = ladder::add::launch, .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

// Idea:   one thread copies one element of y, straight from the formula.
// Parent: none.
// Why:    it is the definition. Limiter: 2 or 4 bytes in flight a thread, too few to keep memory busy in 16-bit types.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/common/wide.h"
#include "dev/concat/concat.h"

namespace ladder::concat {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void concat_join_v01_kernel(unsigned pixels, unsigned c, unsigned k, const T* a, const T* b, T* y) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  const unsigned pixel = index / (c + k);
  const unsigned channel = index % (c + k);
  if (pixel >= pixels) return;
  y[index] = channel < c ? a[pixel * c + channel] : b[pixel * k + channel - c];
}

void launch(const Problem& p, const Join::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    ladder::launch(concat_join_v01_kernel<T>, {.grid = stream_blocks(p.elements(), kThreads, 1), .block = kThreads},
                   stream, p.pixels(), p.c, p.k, static_cast<const T*>(t.a), static_cast<const T*>(t.b),
                   static_cast<T*>(t.y));
  });
}

}  // namespace
}  // namespace ladder::concat

LADDER_VERSION(ladder::concat::Join, {.launch = ladder::concat::launch,
                                      .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

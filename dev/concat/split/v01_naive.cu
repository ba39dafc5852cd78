// Idea:   one thread copies one element of dy, straight from the formula.
// Parent: none.
// Why:    it is the definition. Limiter: 2 or 4 bytes a thread under way, too few to keep memory busy in 16-bit types.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/common/wide.h"
#include "dev/concat/concat.h"

namespace ladder::concat {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void concat_split_v01_kernel(unsigned pixels, unsigned c, unsigned k, const T* dy, T* da, T* db) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  const unsigned pixel = index / (c + k);
  const unsigned channel = index % (c + k);
  if (pixel >= pixels) return;
  if (channel < c) {
    da[pixel * c + channel] = dy[index];
  } else {
    db[pixel * k + channel - c] = dy[index];
  }
}

void launch(const Problem& p, const Split::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    ladder::launch(concat_split_v01_kernel<T>, {.grid = stream_blocks(p.elements(), kThreads, 1), .block = kThreads},
                   stream, p.pixels(), p.c, p.k, static_cast<const T*>(t.dy), static_cast<T*>(t.da),
                   static_cast<T*>(t.db));
  });
}

}  // namespace
}  // namespace ladder::concat

LADDER_VERSION(ladder::concat::Split, {.launch = ladder::concat::launch,
                                       .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

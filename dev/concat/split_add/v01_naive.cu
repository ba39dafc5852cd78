// Idea:   one thread takes one element of dy to where it belongs, straight from the formula.
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
__global__ void concat_split_add_v01_kernel(unsigned pixels, unsigned c, unsigned k, const T* dy, const T* e, T* da,
                                            T* db) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  const unsigned pixel = index / (c + k);
  const unsigned channel = index % (c + k);
  if (pixel >= pixels) return;
  if (channel < c) {
    da[pixel * c + channel] = dy[index];
  } else {
    const unsigned at = pixel * k + channel - c;
    db[at] = from_float<T>(to_float(dy[index]) + to_float(e[at]));
  }
}

void launch(const Problem& p, const SplitAdd::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    ladder::launch(concat_split_add_v01_kernel<T>,
                   {.grid = stream_blocks(p.elements(), kThreads, 1), .block = kThreads}, stream, p.pixels(), p.c, p.k,
                   static_cast<const T*>(t.dy), static_cast<const T*>(t.e), static_cast<T*>(t.da),
                   static_cast<T*>(t.db));
  });
}

}  // namespace
}  // namespace ladder::concat

LADDER_VERSION(ladder::concat::SplitAdd, {.launch = ladder::concat::launch,
                                          .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

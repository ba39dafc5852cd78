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
__global__ void add_embedding_v01_kernel(Problem p, const T* x, const float* e, unsigned row, T* y) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  const unsigned n = index / (p.h * p.w * p.c);
  if (n >= static_cast<unsigned>(p.n)) return;
  y[index] = from_float<T>(to_float(x[index]) + e[n * row + index % p.c]);
}

void launch(const Problem& p, const Embedding::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    ladder::launch(add_embedding_v01_kernel<T>, {.grid = stream_blocks(p.elements(), kThreads, 1), .block = kThreads},
                   stream, p, static_cast<const T*>(t.x), t.e + p.first, p.row(), static_cast<T*>(t.y));
  });
}

}  // namespace
}  // namespace ladder::add

LADDER_VERSION(ladder::add::Embedding,
               {.launch = ladder::add::launch, .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

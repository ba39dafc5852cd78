// Idea:   one thread sums one channel of an image, straight from the formula.
// Parent: none.
// Why:    it is the definition. Limiter: n c threads, at the U-Net's sizes a fraction of the card, each with one load of 2 or 4 bytes in flight.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/add/add.h"
#include "dev/common/wide.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::add {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void add_embedding_backward_v01_kernel(Problem p, const T* dy, float* de, unsigned row) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  const unsigned n = index / p.c;
  if (n >= static_cast<unsigned>(p.n)) return;
  const T* const first = dy + n * (p.h * p.w * p.c) + index % p.c;
  ptx::grid_dependency_wait();
  float sum = 0;
  for (int pixel = 0; pixel < p.h * p.w; ++pixel) sum += to_float(first[pixel * p.c]);
  ptx::grid_dependency_launch();
  de[n * row + index % p.c] = sum;
}

void launch(const Problem& p, const EmbeddingBackward::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    ladder::launch(
        add_embedding_backward_v01_kernel<T>,
        {.grid = stream_blocks(std::int64_t{p.n} * p.c, kThreads, 1), .block = kThreads, .overlaps_previous = true},
        stream, p, static_cast<const T*>(t.dy), t.de + p.first, p.row());
  });
}

}  // namespace
}  // namespace ladder::add

LADDER_VERSION(ladder::add::EmbeddingBackward,
               {.launch = ladder::add::launch, .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

// Idea:   one thread computes one element of the smaller image, straight from the formula.
// Parent: none.
// Why:    it is the definition. Limiter: a thread has 2 or 4 bytes of each of four pixels in flight, too few to keep memory
//         busy in 16-bit types.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/common/wide.h"
#include "dev/resample/resample.h"

namespace ladder::resample {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void resample_pool_v01_kernel(Problem p, const T* x, T* y) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  const int c = static_cast<int>(index % p.c);
  const int column = static_cast<int>(index / p.c % (p.w / 2));
  const int row = static_cast<int>(index / p.c / (p.w / 2) % (p.h / 2));
  const int n = static_cast<int>(index / p.c / (p.w / 2) / (p.h / 2));
  if (n >= p.n) return;
  float sum = 0;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) sum += to_float(x[((n * p.h + 2 * row + i) * p.w + 2 * column + j) * p.c + c]);
  }
  y[index] = from_float<T>(0.25f * sum);
}

void launch(const Problem& p, const Pool::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    ladder::launch(resample_pool_v01_kernel<T>, {.grid = stream_blocks(p.small(), kThreads, 1), .block = kThreads},
                   stream, p, static_cast<const T*>(t.x), static_cast<T*>(t.y));
  });
}

}  // namespace
}  // namespace ladder::resample

LADDER_VERSION(ladder::resample::Pool, {.launch = ladder::resample::launch,
                                        .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

// Idea:   one thread computes one element of the larger image, straight from the formula.
// Parent: none.
// Why:    it is the definition. Limiter: every element of the smaller image is loaded four times, 2 or 4 bytes a thread.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/common/wide.h"
#include "dev/resample/resample.h"

namespace ladder::resample {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void resample_pool_backward_v01_kernel(Problem p, const T* dy, T* dx) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  const int c = static_cast<int>(index % p.c);
  const int column = static_cast<int>(index / p.c % p.w);
  const int row = static_cast<int>(index / p.c / p.w % p.h);
  const int n = static_cast<int>(index / p.c / p.w / p.h);
  if (n >= p.n) return;
  const T dy_value = dy[((n * (p.h / 2) + row / 2) * (p.w / 2) + column / 2) * p.c + c];
  dx[index] = from_float<T>(0.25f * to_float(dy_value));
}

void launch(const Problem& p, const PoolBackward::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    ladder::launch(resample_pool_backward_v01_kernel<T>,
                   {.grid = stream_blocks(p.large(), kThreads, 1), .block = kThreads}, stream, p,
                   static_cast<const T*>(t.dy), static_cast<T*>(t.dx));
  });
}

}  // namespace
}  // namespace ladder::resample

LADDER_VERSION(ladder::resample::PoolBackward,
               {.launch = ladder::resample::launch,
                .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

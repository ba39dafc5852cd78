// Idea:   one thread computes one element, straight from the formula.
// Parent: none.
// Why:    it is the definition. Limiter: at 32 images of 64x64x3 the launch; for more, single bytes in flight.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/common/wide.h"
#include "dev/diffusion/diffusion.h"

namespace ladder::diffusion {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void diffusion_batch_v01_kernel(Problem p, const std::uint8_t* pixels, const std::int32_t* index, T* x0) {
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  const unsigned row = i / (p.w * p.c);
  const unsigned n = row / p.h;
  if (n >= static_cast<unsigned>(p.n)) return;
  const unsigned in_row = i % (p.w * p.c);
  const unsigned channel = in_row % p.c;
  unsigned column = in_row / p.c;
  std::int64_t image = index[n];
  if (image < 0) {
    image = -1 - image;
    column = p.w - 1 - column;
  }
  const std::uint8_t pixel = pixels[((image * p.h + row % p.h) * p.w + column) * p.c + channel];
  x0[i] = from_float<T>(static_cast<float>(pixel) / 127.5f - 1.0f);
}

void launch(const Problem& p, const Batch::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    ladder::launch(diffusion_batch_v01_kernel<T>, {.grid = stream_blocks(p.elements(), kThreads, 1), .block = kThreads},
                   stream, p, t.pixels, t.index, static_cast<T*>(t.x0));
  });
}

}  // namespace
}  // namespace ladder::diffusion

LADDER_VERSION(ladder::diffusion::Batch, {.launch = ladder::diffusion::launch,
                                          .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

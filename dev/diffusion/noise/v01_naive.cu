// Idea:   one thread computes one element, straight from the definition of the stream.
// Parent: none.
// Why:    it is the definition. Limiter: arithmetic, as each of four neighbours makes all four numbers anew.
// Needs:  nothing.

#include "dev/diffusion/gaussian.h"

namespace ladder::diffusion {
namespace {

constexpr int kThreads = 256;

__global__ void diffusion_noise_v01_kernel(unsigned count, unsigned image, const std::int64_t* philox, float* noise) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  if (index < count) noise[index] = normal(philox, image, index);
}

void launch(const Problem& p, const Noise::Tensors& t, void*, Stream stream) {
  ladder::launch(diffusion_noise_v01_kernel, {.grid = stream_blocks(p.elements(), kThreads, 1), .block = kThreads},
                 stream, p.elements(), p.image(), t.philox, t.noise);
}

}  // namespace
}  // namespace ladder::diffusion

LADDER_VERSION(ladder::diffusion::Noise, {.launch = ladder::diffusion::launch,
                                          .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

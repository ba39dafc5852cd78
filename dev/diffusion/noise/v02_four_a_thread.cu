// Idea:   a thread keeps all four numbers of its counter, and stores them as one vector.
// Parent: v01.
// Why:    a quarter of the arithmetic, about 60 instructions a number. Limiter: at 32 images of 64x64x3 the launch.
// Needs:  nothing; an image's elements that are no multiple of four are stored one by one.

#include "dev/diffusion/gaussian.h"
#include "dev/diffusion/quads.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::diffusion {
namespace {

constexpr int kThreads = 128;

template <bool kFullQuads>
__global__ void __launch_bounds__(kThreads)
    diffusion_noise_v02_kernel(unsigned num_images, unsigned image, const std::int64_t* philox, float* noise) {
  const unsigned quad = blockIdx.x * kThreads + threadIdx.x;
  const unsigned n = quad / quads_of(image);
  if (n >= num_images) return;
  ptx::grid_dependency_wait();
  const float4 four = normals(philox, image, quad);
  const float values[4] = {four.x, four.y, four.z, four.w};
  ptx::grid_dependency_launch();
  if constexpr (kFullQuads) return store_four(noise, quad, num_images * image, values);
  const unsigned element = 4 * (quad - n * quads_of(image));
  store_some(noise + n * image + element, image - element, values);
}

void launch(const Problem& p, const Noise::Tensors& t, void*, Stream stream) {
  auto kernel = p.image() % 4 == 0 ? diffusion_noise_v02_kernel<true> : diffusion_noise_v02_kernel<false>;
  ladder::launch(kernel,
                 {.grid = stream_blocks(std::int64_t{p.n} * quads_of(p.image()), kThreads, 1),
                  .block = kThreads,
                  .overlaps_previous = true},
                 stream, p.n, p.image(), t.philox, t.noise);
}

}  // namespace
}  // namespace ladder::diffusion

LADDER_VERSION(ladder::diffusion::Noise, {.launch = ladder::diffusion::launch,
                                          .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

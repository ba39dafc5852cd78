// Idea:   a thread keeps all four numbers of its counter, and stores them as one vector.
// Parent: v01.
// Why:    a quarter of the arithmetic, about 60 instructions a number. Limiter: at 32 images of 64x64x3 the launch.
// Needs:  nothing.

#include "dev/diffusion/gaussian.h"
#include "dev/diffusion/quads.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::diffusion {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    diffusion_noise_v02_kernel(unsigned count, const std::int64_t* philox, float* noise) {
  const unsigned quad = blockIdx.x * kThreads + threadIdx.x;
  if (4 * quad >= count) return;
  ptx::grid_dependency_wait();
  const float4 four = normals(philox, quad);
  const float values[4] = {four.x, four.y, four.z, four.w};
  ptx::grid_dependency_launch();
  store_four(noise, quad, count, values);
}

void launch(const Problem& p, const Noise::Tensors& t, void*, Stream stream) {
  ladder::launch(diffusion_noise_v02_kernel,
                 {.grid = stream_blocks(num_quads(p), kThreads, 1), .block = kThreads, .overlaps_previous = true},
                 stream, p.elements(), t.philox, t.noise);
}

}  // namespace
}  // namespace ladder::diffusion

LADDER_VERSION(ladder::diffusion::Noise, {.launch = ladder::diffusion::launch,
                                          .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

// Idea:   four elements a thread, whole vectors of every tensor, loaded before the step's row is there.
// Parent: v01.
// Why:    a quarter of the instructions, and the two dependent loads of the row overlap with those of the images. Limiter: at
//         32 images of 64x64x3 the launch.
// Needs:  nothing.

#include "dev/diffusion/quads.h"
#include "dev/diffusion/step.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::diffusion {
namespace {

constexpr int kThreads = 128;

template <class T>
__global__ void __launch_bounds__(kThreads) diffusion_ddpm_step_v02_kernel(unsigned count, DdpmStep::Tensors t) {
  const unsigned quad = blockIdx.x * kThreads + threadIdx.x;
  if (4 * quad >= count) return;
  ptx::grid_dependency_wait();
  float pred[4];
  float x[4];
  float noise[4];
  load_four(t.noise, quad, count, noise);
  load_four(static_cast<const T*>(t.pred), quad, count, pred);
  load_four(t.x, quad, count, x);
  const StepCoefficients step = t.table[*t.step];
  ptx::grid_dependency_launch();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float x0 = predicted_x0(step, x[i], pred[i]);
    x[i] = step.x0_weight * x0 + step.x_weight * x[i] + step.sigma * noise[i];
  }
  store_four(t.x, quad, count, x);
  if constexpr (sizeof(T) == 2) store_four(static_cast<T*>(t.y), quad, count, x);
}

void launch(const Problem& p, const DdpmStep::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    ladder::launch(diffusion_ddpm_step_v02_kernel<decltype(element)>,
                   {.grid = stream_blocks(num_quads(p), kThreads, 1), .block = kThreads, .overlaps_previous = true},
                   stream, p.elements(), t);
  });
}

}  // namespace
}  // namespace ladder::diffusion

LADDER_VERSION(ladder::diffusion::DdpmStep, {.launch = ladder::diffusion::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

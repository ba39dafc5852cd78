// Idea:   one thread computes one element, straight from the formula.
// Parent: none.
// Why:    it is the definition. Limiter: at 32 images of 64x64x3 the launch and two dependent loads, of the step and its
//         row.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/common/wide.h"
#include "dev/diffusion/step.h"

namespace ladder::diffusion {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void diffusion_ddpm_step_v01_kernel(unsigned count, DdpmStep::Tensors t) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= count) return;
  const StepCoefficients step = t.table[*t.step];
  const float pred = to_float(static_cast<const T*>(t.pred)[index]);
  const float x = t.x[index];
  const float x0 = predicted_x0(step, x, pred);
  const float next = step.x0_weight * x0 + step.x_weight * x + step.sigma * t.noise[index];
  t.x[index] = next;
  if constexpr (sizeof(T) == 2) static_cast<T*>(t.y)[index] = from_float<T>(next);
}

void launch(const Problem& p, const DdpmStep::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    ladder::launch(diffusion_ddpm_step_v01_kernel<decltype(element)>,
                   {.grid = stream_blocks(p.elements(), kThreads, 1), .block = kThreads}, stream, p.elements(), t);
  });
}

}  // namespace
}  // namespace ladder::diffusion

LADDER_VERSION(ladder::diffusion::DdpmStep, {.launch = ladder::diffusion::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

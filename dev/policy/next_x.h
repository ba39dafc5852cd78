// The scheduler's step of one number of x.
#pragma once

#include "dev/diffusion/step.h"

namespace ladder::policy {

// `out` is the network's answer.
__device__ __forceinline__ float next_x(const diffusion::StepCoefficients& step, float x, float out, float noise) {
  const float x0 = diffusion::predicted_x0(step, x, out);
  return step.x0_weight * x0 + step.x_weight * x + step.pred_weight * out + step.sigma * noise;
}

}  // namespace ladder::policy

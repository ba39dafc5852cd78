// Predicted clean image x0, with which every sampler step begins.
#pragma once

#include "dev/diffusion/diffusion.h"

namespace ladder::diffusion {

// Returns x0; NaN if x0 is not finite, so that nobody takes it for an image: PyTorch would clamp an infinity.
__device__ __forceinline__ float predicted_x0(const StepCoefficients& step, float x, float pred) {
  // NOTE: each product is rounded by itself, as PyTorch does. A fused multiply-add would leave another difference of
  // two nearly equal numbers, up to 1 / sqrt(alpha_bar) times as far from PyTorch's x0.
  const float x0 = (__fmul_rn(step.x_scale, x) - __fmul_rn(step.pred_scale, pred)) * step.x0_scale;
  if (const float nothing = x0 - x0; nothing != 0) return nothing;  // a NaN
  return x0 < -step.clip ? -step.clip : x0 > step.clip ? step.clip : x0;
}

}  // namespace ladder::diffusion

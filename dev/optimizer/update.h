// AdamW step of one parameter, and the scalars that the steps of all parameters share.
#pragma once

#include <cmath>

#include "core/device.h"
#include "core/numeric.h"
#include "dev/optimizer/optimizer.h"

namespace ladder::optimizer {

struct Scalars {
  float scale;  // of the gradient; 0: nothing is updated
  float one_minus_beta1;
  float one_minus_beta2;
  float decay;        // 1 - lr weight_decay
  float step_size;    // lr / (1 - beta1^step)
  float root_factor;  // 1 / sqrt(1 - beta2^step)
  float eps;
  float one_minus_ema_rate;
};

// 1 - (1 - x)^step without cancellation.
__device__ __forceinline__ float one_minus_power(float x, float step) { return -expm1f(step * log1pf(-x)); }

__device__ __forceinline__ Scalars scalars_of(const Hyper& h, float scale) {
  return {.scale = scale,
          .one_minus_beta1 = h.one_minus_beta1,
          .one_minus_beta2 = h.one_minus_beta2,
          .decay = 1.0f - h.lr * h.weight_decay,
          .step_size = h.lr / one_minus_power(h.one_minus_beta1, h.step),
          .root_factor = 1.0f / sqrtf(one_minus_power(h.one_minus_beta2, h.step)),
          .eps = h.eps,
          .one_minus_ema_rate = h.one_minus_ema_rate};
}

struct State {
  float p, m, v, ema;
};

__device__ __forceinline__ State updated(const Scalars& s, State state, float gradient) {
  const float g = s.scale * gradient;
  state.m += s.one_minus_beta1 * (g - state.m);
  state.v += s.one_minus_beta2 * (g * g - state.v);
  state.p = s.decay * state.p - s.step_size * state.m / (s.root_factor * sqrtf(state.v) + s.eps);
  state.ema += s.one_minus_ema_rate * (state.p - state.ema);
  return state;
}

// Gradient of parameter i: in d for the first `mixed` parameters, in g for the others.
template <class T>
__device__ __forceinline__ float gradient_of(unsigned i, unsigned mixed, const void* d, const float* g) {
  return i < mixed ? to_float(static_cast<const T*>(d)[i]) : g[i - mixed];
}

// Outputs of the norm pass, from the sum of squares.
__device__ __forceinline__ void finish_norm(float squares, bool clip, const Hyper& h, float* norm, float* scale) {
  constexpr float kLargest = 3.402823466e38f;
  const float root = sqrtf(squares);
  *norm = root;
  if (!(root <= kLargest)) {  // NaN as well
    *scale = 0.0f;
  } else {
    *scale = clip ? fminf(1.0f, h.max_norm / (root + 1e-6f)) : 1.0f;
  }
}

}  // namespace ladder::optimizer

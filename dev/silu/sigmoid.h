// The sigmoid in fp32 from two instructions of the special function unit.
#pragma once

#include "dev/ptx/approximate.h"

namespace ladder::silu {

// 1 / (1 + e^-x); e^-x may overflow to infinity, of which the quotient is 0.
__device__ __forceinline__ float sigmoid(float x) {
  constexpr float kLog2E = 1.44269504088896341f;
  return ptx::reciprocal_approximate(1.0f + ptx::exp2_approximate(-kLog2E * x));
}

__device__ __forceinline__ float silu(float x) { return x * sigmoid(x); }

__device__ __forceinline__ float silu_derivative(float x) {
  const float s = sigmoid(x);
  return fmaf(s, fmaf(-x, s, x), s);  // s + s (x - x s)
}

}  // namespace ladder::silu

// Access to gamma, beta, dgamma and dbeta, of type P: float, or the 16-bit type of x (Problem::params16).
#pragma once

#include "dev/common/quads.h"

namespace ladder::groupnorm {

template <class P>
__device__ __forceinline__ const P* typed(const float* parameters) {
  return reinterpret_cast<const P*>(parameters);
}

template <class P>
__device__ __forceinline__ float parameter(const float* from, int c) {
  return to_float(typed<P>(from)[c]);
}

template <class P>
__device__ __forceinline__ void store_parameter(float* to, int c, float value) {
  reinterpret_cast<P*>(to)[c] = from_float<P>(value);
}

// Loads the parameters of four channels as floats.
template <class P>
__device__ __forceinline__ void load_parameters(const P* from, float (&values)[kQuad]) {
  unpack_quad<P>(*reinterpret_cast<const Quad<P>*>(from), values);
}

}  // namespace ladder::groupnorm

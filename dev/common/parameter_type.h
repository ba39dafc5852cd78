// Parameters and their gradients are fp32, or of the 16-bit type T of the other tensors where a problem says params16.
#pragma once

#include "core/device.h"
#include "core/numeric.h"
#include "dev/common/vectors.h"

namespace ladder {

// Calls f(P{}) with their type.
template <class T, class F>
auto with_parameter_type(bool params16, F&& f) {
  if constexpr (sizeof(T) == 2) {
    if (params16) return f(T{});
  }
  return f(float{});
}

// Tensors declare them as float.
template <class P>
const P* typed(const float* parameters) {
  return reinterpret_cast<const P*>(parameters);
}
template <class P>
P* typed(float* gradients) {
  return reinterpret_cast<P*>(gradients);
}

// Two side by side, the first one's index even.
template <class P>
__device__ __forceinline__ float2 parameter_pair(const P* from) {
  if constexpr (sizeof(P) == 2) {
    const unsigned words[1] = {*reinterpret_cast<const unsigned*>(from)};
    float values[2];
    unpack<P, 1>(words, values);
    return {values[0], values[1]};
  } else {
    return *reinterpret_cast<const float2*>(from);
  }
}

// Stores the gradient of parameter i or, before it is `finished`, a partial sum of it, which is fp32.
//
// NOTE: both by one pointer, so that an fp32 gradient is one store.
template <class P>
__device__ __forceinline__ void store_gradient(void* to, int i, float sum, bool finished) {
  if (sizeof(P) == 2 && finished) {
    static_cast<P*>(to)[i] = from_float<P>(sum);
  } else {
    static_cast<float*>(to)[i] = sum;
  }
}

// The same of two, i being even.
template <class P>
__device__ __forceinline__ void store_gradient_pair(void* to, int i, float first, float second, bool finished) {
  if (sizeof(P) == 2 && finished) {
    unsigned words[1] = {};
    if constexpr (sizeof(P) == 2) pack<P, 1>({first, second}, words);
    *reinterpret_cast<unsigned*>(static_cast<P*>(to) + i) = words[0];
  } else {
    *reinterpret_cast<float2*>(static_cast<float*>(to) + i) = {first, second};
  }
}

// Four, the first one's index a multiple of four.
template <class P>
__device__ __forceinline__ float4 parameter_quad(const P* from) {
  if constexpr (sizeof(P) == 2) {
    const uint2 bits = *reinterpret_cast<const uint2*>(from);
    const unsigned words[2] = {bits.x, bits.y};
    float values[4];
    unpack<P, 2>(words, values);
    return {values[0], values[1], values[2], values[3]};
  } else {
    return *reinterpret_cast<const float4*>(from);
  }
}

}  // namespace ladder

// Stores of a slab's normalised elements (v09 and later).
#pragma once

#include "core/numeric.h"
#include "dev/common/vectors.h"
#include "dev/groupnorm/activation.h"
#include "dev/groupnorm/tensor_core/tensor_core_slab.h"

namespace ladder::groupnorm::tensor_core {

// Activation of two elements' z. The kernels multiply scale and shift by kFactor, so that apply() gets kFactor z and
// needs fewer instructions.
template <class T, class Act>
struct Output {
  static constexpr float kFactor = 1.0f;
  static __device__ __forceinline__ void apply(float& a, float& b) { a = Act::value(a), b = Act::value(b); }
};
// SiLU from w = -log2(e) z: z / (1 + e^-z) = w / (-log2(e) (1 + 2^w)).
template <>
struct Output<float, Silu> {
  static constexpr float kFactor = -1.44269504088896341f;
  static __device__ __forceinline__ float inverse(float w) { return fmaf(ptx::exp2_approximate(w), kFactor, kFactor); }
  static __device__ __forceinline__ void apply(float& a, float& b) {
    a *= ptx::reciprocal_approximate(inverse(a));
    b *= ptx::reciprocal_approximate(inverse(b));
  }
};
// SiLU of two elements with one reciprocal, as 1 / p = q / (p q): three special-function instructions instead of four.
// The product must not overflow, so below z = -41 the sigmoid is clamped at 2^-60, which moves y by less than 2^-60 of z.
template <class T>
struct Output<T, Silu> : Output<float, Silu> {
  static __device__ __forceinline__ void apply(float& a, float& b) {
    constexpr float kMax = 60;
    const float p = Output::inverse(fminf(a, kMax));
    const float q = Output::inverse(fminf(b, kMax));
    const float r = ptx::reciprocal_approximate(p * q);
    a *= r * q;
    b *= r * p;
  }
};

// Normalises the thread's vectors of column `column` and stores them in y. The vectors lie plan.threads vectors apart
// in the slab, in [from, end), and `step` elements apart in y.
template <class T, class Act, bool kPivots>
__device__ __forceinline__ void store_normalised(const TensorCorePlan& plan, const uint4* from, const uint4* end, T* to,
                                                 int step, int column, const TensorCoreSums& sums) {
  constexpr int kVec = kVector<T>;
  float scale[kVec];
  float shift[kVec];
#pragma unroll
  for (int i = 0; i < kVec; i += 4) {
    *reinterpret_cast<float4*>(scale + i) = *reinterpret_cast<const float4*>(sums.scale + column * kVec + i);
    *reinterpret_cast<float4*>(shift + i) = *reinterpret_cast<const float4*>(sums.shift + column * kVec + i);
  }
  const auto store = [&](const uint4* vector, T* y) {
    float values[kVec];
    unpack<T>(*vector, values);
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      if constexpr (kPivots) values[i] -= sums.pivot[column * kVec + i];
      values[i] = fmaf(values[i], scale[i], shift[i]);
    }
#pragma unroll
    for (int i = 0; i < kVec; i += 2) Output<T, Act>::apply(values[i], values[i + 1]);
    *reinterpret_cast<uint4*>(y) = pack<T>(values);
  };
#pragma unroll 1
  for (; from + plan.threads < end; from += 2 * plan.threads, to += 2 * step) {
    store(from, to);
    store(from + plan.threads, to + step);
  }
  if (from < end) store(from, to);
}

}  // namespace ladder::groupnorm::tensor_core

// Activations in fp32: value and derivative, each from exponentials and divisions of about two units in the last place. A NaN
// stays one, as with PyTorch; an infinity gives what PyTorch's gives, but for Mish's derivative at +infinity, which is infinite.
#pragma once

#include "core/device.h"
#include "core/numeric.h"
#include "dev/common/activation_kind.h"
#include "dev/ptx/approximate.h"
#include "dev/ptx/maximum.h"

namespace ladder {

__device__ __forceinline__ float exponential(float z) {
  constexpr float kLog2E = 1.44269504088896341f;
  return ptx::exp2_approximate(kLog2E * z);
}

// 1 / (1 + e^-z); e^-z may overflow to infinity, of which the quotient is 0.
__device__ __forceinline__ float sigmoid(float z) { return ptx::reciprocal_approximate(1.0f + exponential(-z)); }

struct Identity {
  static __device__ __forceinline__ float value(float z) { return z; }
  static __device__ __forceinline__ float derivative(float) { return 1.0f; }
};

struct Relu {
  static __device__ __forceinline__ float value(float z) { return ptx::maximum(z, 0.0f); }
  static __device__ __forceinline__ float derivative(float z) { return z <= 0.0f ? 0.0f : 1.0f; }
};

// z sigmoid(z): Elfwing et al. 2017.
struct Silu {
  static __device__ __forceinline__ float value(float z) { return z * sigmoid(z); }
  static __device__ __forceinline__ float derivative(float z) {
    const float s = sigmoid(z);
    return fmaf(s, fmaf(-z, s, z), s);  // s + s (z - z s)
  }
};

// z Phi(z), Phi the normal distribution's cumulative function: Hendrycks and Gimpel 2016.
struct Gelu {
  // Phi(z) and e^(-z^2 / 2).
  struct Normal {
    float phi, bell;
  };
  // Phi(-|z|) = e^(-z^2 / 2) t P(t), t = 1 / (1 + 0.32 |z|): the form of Abramowitz and Stegun 7.1.26, with a polynomial
  // fitted to erfcx(|z| / sqrt(2)) / 2t for the least relative error on (0, 1], 3.2e-8. In all four units in the last place
  // where Phi(z) > 0.1 and, from the rounding of z^2, 1e-5 of what is left of it at z = -12. No cancellation below zero.
  static __device__ __forceinline__ Normal normal(float z) {
    constexpr float kHalfLog2E = 0.72134752044448170f;
    constexpr float kP[] = {0.127661526f,   0.127660944f,  0.114622357f,  0.0878291005f, 0.0586539562f,
                            -0.0093775345f, 0.0653279775f, -0.146707407f, 0.095407225f,  -0.0210781602f};
    const float bell = ptx::exp2_approximate(-kHalfLog2E * z * z);
    const float t = ptx::reciprocal_approximate(fmaf(0.32f, fabsf(z), 1.0f));
    float p = kP[9];
#pragma unroll
    for (int i = 8; i >= 0; --i) p = fmaf(p, t, kP[i]);
    const float tail = bell * (t * p);
    return {.phi = z < 0.0f ? tail : 1.0f - tail, .bell = bell};
  }
  static __device__ __forceinline__ float value(float z) { return z * normal(z).phi; }
  static __device__ __forceinline__ float derivative(float z) {
    constexpr float kInverseSqrtTwoPi = 0.398942280401432678f;
    const Normal n = normal(z);
    return fmaf(kInverseSqrtTwoPi * z, n.bell, n.phi);
  }
};

// The same with Phi(z) replaced by (1 + tanh(u)) / 2 = sigmoid(2 u), u = sqrt(2 / pi) (z + 0.044715 z^3).
struct GeluTanh {
  static constexpr float kTwoSqrtTwoOverPi = 1.59576912160573072f;
  static constexpr float kCubic = 0.044715f;
  static __device__ __forceinline__ float value(float z) {
    return z * sigmoid(kTwoSqrtTwoOverPi * z * (1.0f + kCubic * z * z));
  }
  static __device__ __forceinline__ float derivative(float z) {
    const float s = sigmoid(kTwoSqrtTwoOverPi * z * (1.0f + kCubic * z * z));
    return s + z * s * (1.0f - s) * kTwoSqrtTwoOverPi * (1.0f + 3.0f * kCubic * z * z);
  }
};

// z tanh(softplus(z)): Misra 2019. With e = e^z, tanh(log(1 + e)) = q / (q + 2), q = e (e + 2).
struct Mish {
  // Beyond it the quotient is 1 in fp32, e^2 no infinity yet, and z / e^2 too small to count for any z below 10^28.
  static constexpr float kSaturated = 42.0f;
  static __device__ __forceinline__ float value(float z) {
    const float e = exponential(fminf(z, kSaturated));
    const float q = e * (e + 2.0f);
    return z * (q * ptx::reciprocal_approximate(q + 2.0f));
  }
  // t + z (1 - t^2) sigmoid(z), where 1 - t^2 = 4 (q + 1) / (q + 2)^2 and q + 1 = (e + 1)^2.
  static __device__ __forceinline__ float derivative(float z) {
    const float e = exponential(fminf(z, kSaturated));
    const float q = e * (e + 2.0f);
    const float inverse = ptx::reciprocal_approximate(q + 2.0f);
    return inverse * fmaf(z, 4.0f * e * (e + 1.0f) * inverse, q);
  }
};

}  // namespace ladder

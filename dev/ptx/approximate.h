// Approximations of the special function unit, one instruction each: within two units in the last place, denormal numbers
// counting as zero (PTX ISA 9.7.3.21 ex2, 9.7.3.13 rcp). __expf and __fdividef spend three or four more instructions on
// denormals.
#pragma once

#include <cmath>

#include "core/device.h"

namespace ladder::ptx {

// 2^x; infinity from x = 128 on.
__device__ __forceinline__ float exp2_approximate(float x) {
#if defined(__CUDACC__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

// 1 / x; zero from x = 2^126 on.
__device__ __forceinline__ float reciprocal_approximate(float x) {
#if defined(__CUDACC__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / x;
#endif
}

}  // namespace ladder::ptx

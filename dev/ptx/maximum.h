// The greater of two numbers, NaN where one is: one instruction on sm_80 and up, as fmaxf is, which drops a NaN
// (PTX ISA 9.7.3.12 max.NaN).
#pragma once

#include "core/device.h"

namespace ladder::ptx {

__device__ __forceinline__ float maximum(float a, float b) {
#if defined(__CUDACC__)
  float greater;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(greater) : "f"(a), "f"(b));
  return greater;
#else
  return a > b || a != a ? a : b;
#endif
}

}  // namespace ladder::ptx

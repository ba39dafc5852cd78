// A number that the compiler can no longer follow, at no instruction: what is computed from it is computed where it stands,
// and not held in registers from further up. The emulator's compiler may follow what it likes.
#pragma once

#include "core/device.h"

namespace ladder::ptx {

__device__ __forceinline__ int opaque(int number) {
#if defined(__CUDACC__)
  asm volatile("" : "+r"(number));
#endif
  return number;
}
__device__ __forceinline__ float opaque(float number) {
#if defined(__CUDACC__)
  asm volatile("" : "+f"(number));
#endif
  return number;
}

}  // namespace ladder::ptx

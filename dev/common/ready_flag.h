// A float in global memory with a ready flag beside it, for a kernel that takes values which another one is still making.
// Whoever takes the value clears the flag, so that the next launch finds none: whatever else the memory held, it was not these
// 32 bits in just this place.
#pragma once

#include "core/device.h"

namespace ladder {

using Flagged = unsigned long long;

inline constexpr unsigned kReady = 0x9e3779b9u;

__device__ __forceinline__ Flagged flagged(float value) {
  return static_cast<Flagged>(kReady) << 32 | __float_as_uint(value);
}
__device__ __forceinline__ bool is_ready(Flagged word) { return static_cast<unsigned>(word >> 32) == kReady; }
__device__ __forceinline__ float value_of(Flagged word) { return __uint_as_float(static_cast<unsigned>(word)); }

}  // namespace ladder

// Sums over the lanes of a warp, of one value or of several at once.
#pragma once

#include "core/device.h"

namespace ladder {

// The sum of a value, in all lanes.
__device__ __forceinline__ float sum_over_lanes(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
  return value;
}

// Sums each of N values over all lanes: lane l returns that of value l / (32 / N). Half of the lanes keep one half of the
// values, and so on, until kCount is 1.
template <int kCount, int N>
__device__ __forceinline__ float sum_over_lanes(float (&values)[N], int lane) {
  constexpr int kDistance = 16 * kCount / N;
  if constexpr (kCount > 1) {
    const bool upper = (lane & kDistance) != 0;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float low = values[i];
      const float high = values[kCount / 2 + i];
      values[i] = (upper ? high : low) + __shfl_xor_sync(~0u, upper ? low : high, kDistance);
    }
    return sum_over_lanes<kCount / 2>(values, lane);
  } else {
    float sum = values[0];
#pragma unroll
    for (int distance = kDistance; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    return sum;
  }
}

}  // namespace ladder

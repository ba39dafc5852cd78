// Count, mean and squared deviations of a set of values, merged from parts of the set.
#pragma once

#include "core/device.h"
#include "dev/ptx/maximum.h"

namespace ladder {

// Count and mean of a set of values, and the sum of their squared distances from the mean.
struct Moments {
  float count = 0;
  float mean = 0;  // less the pivot, if the values were taken about a pivot
  float m2 = 0;
};

// Moments from the sums of x - pivot and of its square.
__device__ __forceinline__ Moments moments_of(float2 sums, float count) {
  const float mean = sums.x / count;
  return {.count = count, .mean = mean, .m2 = ptx::maximum(fmaf(-sums.x, mean, sums.y), 0.0f)};
}

// Moments of the union of two sets: Chan, Golub and LeVeque 1979.
__device__ __forceinline__ Moments merge(const Moments& a, const Moments& b) {
  const float count = a.count + b.count;
  if (count == 0) return a;
  const float b_fraction = b.count / count;
  const float apart = b.mean - a.mean;
  return {.count = count,
          .mean = fmaf(apart, b_fraction, a.mean),
          .m2 = a.m2 + b.m2 + apart * apart * b_fraction * a.count};
}

// Merge the moments of all lanes into lane 0.
__device__ __forceinline__ Moments merge_warp(Moments local) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    local = merge(local, {.count = __shfl_down_sync(~0u, local.count, distance),
                          .mean = __shfl_down_sync(~0u, local.mean, distance),
                          .m2 = __shfl_down_sync(~0u, local.m2, distance)});
  }
  return local;
}

}  // namespace ladder

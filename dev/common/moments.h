// Number, mean and squared deviations of a set of values, made of parts of it.
#pragma once

#include "core/device.h"
#include "dev/ptx/maximum.h"

namespace ladder {

// Of a set of values: their number, mean and the sum of their squared distances from it.
struct Moments {
  float count = 0;
  float mean = 0;  // less the pivot, if the values were taken about one
  float m2 = 0;
};

// Out of sums of x - pivot and of its square.
__device__ __forceinline__ Moments moments_of(float2 sums, float count) {
  const float mean = sums.x / count;
  return {.count = count, .mean = mean, .m2 = ptx::maximum(fmaf(-sums.x, mean, sums.y), 0.0f)};
}

// Of two sets together: Chan, Golub and LeVeque 1979.
__device__ __forceinline__ Moments merge(const Moments& a, const Moments& b) {
  const float count = a.count + b.count;
  if (count == 0) return a;
  const float share = b.count / count;
  const float apart = b.mean - a.mean;
  return {.count = count, .mean = fmaf(apart, share, a.mean), .m2 = a.m2 + b.m2 + apart * apart * share * a.count};
}

// Of all lanes' sets together, in lane 0.
__device__ __forceinline__ Moments merge_warp(Moments own) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    own = merge(own, {.count = __shfl_down_sync(~0u, own.count, distance),
                      .mean = __shfl_down_sync(~0u, own.mean, distance),
                      .m2 = __shfl_down_sync(~0u, own.m2, distance)});
  }
  return own;
}

}  // namespace ladder

// Maximum of a part of a row and its sum of e^(x - max): two numbers by which parts can be merged.
#pragma once

#include <cfloat>

#include "core/device.h"
#include "dev/ptx/approximate.h"

namespace ladder::softmax {

struct alignas(8) MaxSum {
  float max;
  float sum;
};

// MaxSum of an empty part. Its max is finite, so that e^(x - max) is 0 for x = -inf, even in a part of nothing else.
constexpr MaxSum kNothing{-FLT_MAX, 0};

// e^(x - max), 0 for an x that is far below.
__device__ __forceinline__ float exponential(float x, float max) {
  constexpr float kLog2E = 1.44269504f;
  return ptx::exp2_approximate((x - max) * kLog2E);
}

// Maximum, and sum, over `lanes` adjacent lanes of a warp, a power of two. All lanes of the warp call.
__device__ __forceinline__ float max_over_lanes(float value, int lanes = 32) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    if (distance < lanes) value = fmaxf(value, __shfl_xor_sync(~0u, value, distance));
  }
  return value;
}
__device__ __forceinline__ float add_over_lanes(float value, int lanes = 32) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    if (distance < lanes) value += __shfl_xor_sync(~0u, value, distance);
  }
  return value;
}

__device__ __forceinline__ MaxSum merged(const MaxSum& a, const MaxSum& b) {
  const float max = fmaxf(a.max, b.max);
  return {max, a.sum * exponential(a.max, max) + b.sum * exponential(b.max, max)};
}

// Merge the parts of a warp's lanes; all lanes get the same result.
__device__ __forceinline__ MaxSum merge_lanes(const MaxSum& part) {
  const float max = max_over_lanes(part.max);
  return {max, add_over_lanes(part.sum * exponential(part.max, max))};
}

// Merge `count` parts in memory, by a full warp. All warps that do so get the same bits.
__device__ __forceinline__ MaxSum merge_parts(const MaxSum* parts, int count) {
  MaxSum lane_part = kNothing;
  for (int i = threadIdx.x % 32; i < count; i += 32) lane_part = merged(lane_part, parts[i]);
  return merge_lanes(lane_part);
}

// Merge the parts of all threads of a block; all of them call. `parts` has room for one part per warp in shared memory.
// Two such calls on the same room need a barrier in between.
__device__ __forceinline__ MaxSum merge_block(const MaxSum& part, MaxSum* parts) {
  const MaxSum warp_part = merge_lanes(part);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = warp_part;
  __syncthreads();
  return merge_parts(parts, static_cast<int>(blockDim.x) / 32);
}

}  // namespace ladder::softmax

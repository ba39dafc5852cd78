// Sums over the threads that share a row: a warp, or a block of whole warps.
#pragma once

#include "core/device.h"

namespace ladder::layernorm {

// Every kThreads neighbouring threads, a power of two up to 32, get the sum of what they have.
template <int kThreads>
__device__ __forceinline__ float2 sum_lanes(float2 value) {
#pragma unroll
  for (int distance = kThreads / 2; distance > 0; distance /= 2) {
    value.x += __shfl_xor_sync(~0u, value.x, distance);
    value.y += __shfl_xor_sync(~0u, value.y, distance);
  }
  return value;
}

// The sum of what the kThreads threads of a row have, in each of them; kThreads is 32, or the whole block's number.
// `parts` [kThreads / 32] is shared memory that no other sum uses.
template <int kThreads>
__device__ __forceinline__ float2 sum_row(float2 value, float2* parts) {
  static_assert(kThreads % 32 == 0 && kThreads <= 1024 && (kThreads & (kThreads - 1)) == 0);
  constexpr int kWarps = kThreads / 32;
  value = sum_lanes<32>(value);
  if constexpr (kWarps > 1) {
    const int lane = threadIdx.x % 32;
    if (lane == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = sum_lanes<kWarps>(parts[lane % kWarps]);
  }
  return value;
}

}  // namespace ladder::layernorm

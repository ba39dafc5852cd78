// Sum of one value per thread of a block, in an order that depends on the threads' indices alone.
#pragma once

#include "core/device.h"

namespace ladder {

// Returns the sum over kThreads threads, in thread 0. All threads call, at most once in a kernel.
template <int kThreads>
__device__ __forceinline__ float block_sum(float value) {
  static_assert(kThreads % 32 == 0 && kThreads <= 1024);
  constexpr int kWarps = kThreads / 32;
  LADDER_SHARED(float, of_warp, [kWarps]);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_down_sync(0xffffffffu, value, distance);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) value += of_warp[warp];
  }
  return value;
}

}  // namespace ladder

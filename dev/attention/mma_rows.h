// Accumulators of mma.sync as rows: packed for the next product, reduced within a row, stored to global memory. Lane t
// of the four that share row g of a fragment has columns 2t and 2t + 1 of each eight.
#pragma once

#include <cstdint>

#include "dev/common/vectors.h"

namespace ladder::attention {

constexpr float kLog2E = 1.4426950408889634f;

template <class T>
__device__ __forceinline__ std::uint32_t packed(float low, float high) {
  const float values[2] = {low, high};
  unsigned word[1];
  pack<T, 1>(values, word);
  return word[0];
}

// Pack two adjacent 16 x 8 accumulators as the A fragment of the next product: the layouts are the same.
template <class T>
__device__ __forceinline__ void as_rows(std::uint32_t (&a)[4], const float (&left)[4], const float (&right)[4]) {
  a[0] = packed<T>(left[0], left[1]);
  a[1] = packed<T>(left[2], left[3]);
  a[2] = packed<T>(right[0], right[1]);
  a[3] = packed<T>(right[2], right[3]);
}

// Sum and maximum over the four lanes that share a row of a fragment.
__device__ __forceinline__ float quad_sum(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}
__device__ __forceinline__ float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

// Transpose 4 x 4 words within a quad: lane t gives word t of runs 0 to 3 and gets words 0 to 3 of run t.
__device__ __forceinline__ void quad_transpose(unsigned (&word)[4]) {
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    const bool upper = threadIdx.x & step;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & step) continue;
      const unsigned received = __shfl_xor_sync(0xffffffffu, upper ? word[i] : word[i + step], step);
      (upper ? word[i] : word[i + step]) = received;
    }
  }
}

// Store one row of a warp's sums, times `factor`, to global memory, 16 bytes a lane: row g, or row g + 8 if `half` is
// 1. All lanes must call; `inside` says whether the row exists.
template <class T, int kD>
__device__ __forceinline__ void store_row(T* to, const float (&sum)[kD / 8][4], int half, float factor, bool inside) {
#pragma unroll
  for (int runs = 0; runs < kD / 8; runs += 4) {
    unsigned word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      word[i] = packed<T>(factor * sum[runs + i][2 * half], factor * sum[runs + i][2 * half + 1]);
    }
    quad_transpose(word);
    if (inside) {
      *reinterpret_cast<uint4*>(to + (runs + threadIdx.x % 4) * 8) = {word[0], word[1], word[2], word[3]};
    }
  }
}

}  // namespace ladder::attention

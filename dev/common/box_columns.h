// Column sums of a box as the TMA leaves it in shared memory: 64 rows of 64 16-bit elements under the 128-byte swizzle.
// Four warps share a box, sixteen columns each.
#pragma once

#include "dev/common/vectors.h"

namespace ladder {

inline constexpr int kColumnWarps = 4;

// Add up two columns a lane: 2 (lane % 8) and the next of the warp's sixteen, in every fourth pair of rows, which keeps
// the lanes in different banks.
template <class T>
__device__ __forceinline__ void add_box_columns(float (&sum)[2], const unsigned char* box, int warp) {
  constexpr int kRows = 64;
  constexpr int kRowBytes = 128;
  const int lane = threadIdx.x % 32;
  const int word = warp * 8 + lane % 8;
#pragma unroll
  for (int j = 0; j < kRows / 4; ++j) {
    const int row = j / 2 * 8 + lane / 8 * 2 + j % 2;
    const unsigned pair[1] = {
        *reinterpret_cast<const unsigned*>(box + row * kRowBytes + (word / 4 ^ row % 8) * 16 + word % 4 * 4)};
    float values[2];
    unpack<T, 1>(pair, values);
    sum[0] += values[0], sum[1] += values[1];
  }
}

// Add up the lanes that share two columns: lanes 0 to 7 then have the box's sums of their columns.
__device__ __forceinline__ void add_column_lanes(float (&sum)[2]) {
#pragma unroll
  for (int distance = 8; distance < 32; distance *= 2) {
    sum[0] += __shfl_xor_sync(0xffffffff, sum[0], distance);
    sum[1] += __shfl_xor_sync(0xffffffff, sum[1], distance);
  }
}

}  // namespace ladder

// Sums over the rows of a block: a thread has two sums of each of its four columns, a row is `quads` threads, and a warp's or
// a row's sums become a part, rows [parts][pitch] of pairs in shared memory.
#pragma once

#include "core/device.h"
#include "dev/common/quads.h"

namespace ladder {

struct QuadRows {
  int quads;    // of a row
  int pitch;    // columns of a part: four times as many
  int rows;     // of a block; threads past them have nothing
  int senders;  // warps, or rows where those are wider
  int parts;    // places for what they have: as many, or half as many, rounded up, if they fold
};

// Lanes `distance` apart share out the first kCount of their values: each adds up half of them for both.
template <int kCount>
__device__ __forceinline__ void halve(float (&values)[2 * kQuad], int lane, int distance) {
  const bool upper = (lane & distance) != 0;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const float kept = upper ? values[kCount / 2 + i] : values[i];
    const float given = upper ? values[i] : values[kCount / 2 + i];
    values[i] = kept + __shfl_xor_sync(~0u, given, distance);
  }
}

// Of a warp with 1, 2, 4, 8 or 16 quads a row: its lanes share out what they add up. `part`: of the lane's columns.
__device__ __forceinline__ void sum_lanes(int quads, int lane, float* part, float (&values)[2 * kQuad]) {
  halve<8>(values, lane, 16);
  part += lane / 16 * 4;
  if (quads == 16) {
    *reinterpret_cast<float4*>(part) = {values[0], values[1], values[2], values[3]};
    return;
  }
  halve<4>(values, lane, 8);
  part += lane / 8 % 2 * 2;
  if (quads == 8) {
    *reinterpret_cast<float2*>(part) = {values[0], values[1]};
    return;
  }
  halve<2>(values, lane, 4);
#pragma unroll 1
  for (int distance = 2; distance >= quads; distance /= 2) values[0] += __shfl_xor_sync(~0u, values[0], distance);
  if (lane % 4 < quads) part[lane / 4 % 2] = values[0];
}

// By all threads of a block; a barrier must follow. kFolds: where there are fewer parts than senders, the last senders add
// theirs to what the first have left.
template <bool kFolds>
__device__ __forceinline__ void sum_rows(const QuadRows& shape, float2* parts, int row, int column,
                                         float (&values)[2 * kQuad]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  if (shape.quads < 32 && (shape.quads & (shape.quads - 1)) == 0) {
    sum_lanes(shape.quads, lane, reinterpret_cast<float*>(parts + warp * shape.pitch + column * kQuad), values);
    return;
  }
  // A lane adds what later lanes of its own column have.
#pragma unroll 1
  for (int distance = shape.quads; distance < 32; distance *= 2) {
#pragma unroll
    for (int i = 0; i < 2 * kQuad; ++i) {
      const float other = __shfl_down_sync(~0u, values[i], distance);
      if (lane + distance < 32) values[i] += other;
    }
  }
  const int index = shape.quads < 32 ? warp : row;
  const bool sends = shape.quads < 32 ? lane < shape.quads : row < shape.rows;
  const auto put = [&](int to) {
    float2* const part = parts + to * shape.pitch + column * kQuad;
    *reinterpret_cast<float4*>(part) = {values[0], values[1], values[2], values[3]};
    *reinterpret_cast<float4*>(part + 2) = {values[4], values[5], values[6], values[7]};
  };
  if (sends && index < shape.parts) put(index);
  if constexpr (kFolds) {
    if (shape.parts == shape.senders) return;
    __syncthreads();
    if (!sends || index < shape.parts) return;
    const auto* const part =
        reinterpret_cast<const float*>(parts + (index - shape.parts) * shape.pitch + column * kQuad);
#pragma unroll
    for (int i = 0; i < 2 * kQuad; ++i) values[i] += part[i];
    put(index - shape.parts);
  }
}

// Each of `lanes` lanes in a row, a power of two, gets the sum of what they have.
__device__ __forceinline__ float2 add_lanes(float2 sum, int lanes) {
#pragma unroll 1
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    sum.x += __shfl_xor_sync(~0u, sum.x, distance);
    sum.y += __shfl_xor_sync(~0u, sum.y, distance);
  }
  return sum;
}

// The sum of column i of `count` rows [pitch].
__device__ __forceinline__ float2 sum_column(const float2* rows, int count, int pitch, int i) {
  float2 sum{0, 0};
#pragma unroll 4
  for (int row = 0; row < count; ++row) {
    const float2 v = rows[row * pitch + i];
    sum.x += v.x, sum.y += v.y;
  }
  return sum;
}

}  // namespace ladder

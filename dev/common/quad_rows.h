// Sums over the rows of a block. A row is `quads` threads, and a thread has one or two sums of each of its four
// columns. The sums of a warp, or of a row where rows are wider, become one part in shared memory: [parts][pitch] of
// float or float2.
#pragma once

#include "core/device.h"
#include "dev/common/quads.h"

namespace ladder {

struct QuadRows {
  int quads;         // threads of a row, four columns each
  int pitch;         // columns of a part: 4 * quads
  int rows;          // of a block; threads past them have no sums
  int partial_sums;  // of a block: one a warp, or one a row where rows are wider than a warp
  int parts;         // rows of shared memory: as many as partial sums, or half as many, rounded up, if they fold
};

// Reduce-scatter between lanes `distance` apart: each adds up half of the first kCount values for both.
template <int kCount, int kValues>
__device__ __forceinline__ void halve(float (&values)[kValues], int lane, int distance) {
  const bool upper = (lane & distance) != 0;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const float kept = upper ? values[kCount / 2 + i] : values[i];
    const float given = upper ? values[i] : values[kCount / 2 + i];
    values[i] = kept + __shfl_xor_sync(~0u, given, distance);
  }
}

// Stores the first kCount values.
template <int kCount>
__device__ __forceinline__ void put_values(float* to, const float* values) {
  if constexpr (kCount == 4) {
    *reinterpret_cast<float4*>(to) = {values[0], values[1], values[2], values[3]};
  } else if constexpr (kCount == 2) {
    *reinterpret_cast<float2*>(to) = {values[0], values[1]};
  } else {
    *to = values[0];
  }
}

// Sum over the rows of a warp, with 1, 2, 4, 8 or 16 quads a row, by reduce-scatter. `part`: of the lane's columns.
template <int kValues>
__device__ __forceinline__ void sum_lanes(int quads, int lane, float* part, float (&values)[kValues]) {
  halve<kValues>(values, lane, 16);
  part += lane / 16 * (kValues / 2);
  if (quads == 16) return put_values<kValues / 2>(part, values);
  halve<kValues / 2>(values, lane, 8);
  part += lane / 8 % 2 * (kValues / 4);
  if (quads == 8) return put_values<kValues / 4>(part, values);
  constexpr int kLanesPerValue = kValues == 8 ? 4 : 8;  // lanes with values to add up
  if constexpr (kValues == 8) {
    halve<2>(values, lane, 4);
    part += lane / 4 % 2;
  }
#pragma unroll 1
  for (int distance = kLanesPerValue / 2; distance >= quads; distance /= 2) {
    values[0] += __shfl_xor_sync(~0u, values[0], distance);
  }
  if (lane % kLanesPerValue < quads) *part = values[0];
}

// Sum over the rows of a block. All threads call; a barrier must follow. kFolds: with fewer parts
// than partial sums, the last partial sums are added to the parts that the first ones have become.
template <bool kFolds, int kValues>
__device__ __forceinline__ void sum_rows(const QuadRows& shape, float* parts, int row, int column,
                                         float (&values)[kValues]) {
  static_assert(kValues == kQuad || kValues == 2 * kQuad);
  const int pitch = shape.pitch * (kValues / kQuad);
  parts += column * kValues;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  if (shape.quads < 32 && (shape.quads & (shape.quads - 1)) == 0) {
    sum_lanes(shape.quads, lane, parts + warp * pitch, values);
    return;
  }
  // Add the sums of later lanes of the same column.
#pragma unroll 1
  for (int distance = shape.quads; distance < 32; distance *= 2) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const float other = __shfl_down_sync(~0u, values[i], distance);
      if (lane + distance < 32) values[i] += other;
    }
  }
  const int index = shape.quads < 32 ? warp : row;
  const bool sends = shape.quads < 32 ? lane < shape.quads : row < shape.rows;
  const auto put = [&](int to) {
    put_values<kQuad>(parts + to * pitch, values);
    if constexpr (kValues > kQuad) put_values<kQuad>(parts + to * pitch + kQuad, values + kQuad);
  };
  if (sends && index < shape.parts) put(index);
  if constexpr (kFolds) {
    if (shape.parts == shape.partial_sums) return;
    __syncthreads();
    if (!sends || index < shape.parts) return;
    const float* const part = parts + (index - shape.parts) * pitch;
#pragma unroll
    for (int i = 0; i < kValues; ++i) values[i] += part[i];
    put(index - shape.parts);
  }
}

template <bool kFolds>
__device__ __forceinline__ void sum_rows(const QuadRows& shape, float2* parts, int row, int column,
                                         float (&values)[2 * kQuad]) {
  sum_rows<kFolds, 2 * kQuad>(shape, reinterpret_cast<float*>(parts), row, column, values);
}

// Returns the sum over each `lanes` adjacent lanes, a power of two.
__device__ __forceinline__ float2 add_lanes(float2 sum, int lanes) {
#pragma unroll 1
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    sum.x += __shfl_xor_sync(~0u, sum.x, distance);
    sum.y += __shfl_xor_sync(~0u, sum.y, distance);
  }
  return sum;
}

// Returns the sum of column i of `count` rows [pitch].
__device__ __forceinline__ float sum_column(const float* rows, int count, int pitch, int i) {
  float sum = 0;
#pragma unroll 4
  for (int row = 0; row < count; ++row) sum += rows[row * pitch + i];
  return sum;
}
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

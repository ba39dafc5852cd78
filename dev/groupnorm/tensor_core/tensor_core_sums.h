// Sums and sums of squares of a slab's channels: by the tensor core about zero in 16-bit types, else by additions.
#pragma once

#include "core/numeric.h"
#include "dev/common/lane_sums.h"
#include "dev/common/vectors.h"
#include "dev/groupnorm/tensor_core/tensor_core_slab.h"
#include "dev/ptx/ldmatrix.h"
#include "dev/ptx/mma.h"

namespace ladder::groupnorm::tensor_core {

template <class T>
inline constexpr std::uint32_t kOnes = std::is_same_v<T, __half> ? 0x3c003c00u : 0x3f803f80u;

// Sums of 8 channels over every column_parts-th tile from `tile` on, `step` vectors apart, by the tensor core. Each lane points at
// the vector of its pixel; a transposed matrix has a row for each channel. (x, ones) times x^T, 16 pixels at a time.
// Lane 4 i + i / 2 has channel i's on the diagonal and returns them; others return anything.
template <class T>
__device__ __forceinline__ float2 multiplied_tiles(const TensorCorePlan& plan, const uint4* from, int step, int tile,
                                                   int lane_idx) {
  // NOTE: a constant would be copied into its place before each product. After a shuffle it has registers of its own.
  std::uint32_t one[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) one[i] = __shfl_sync(~0u, kOnes<T>, i);
  float d[4][4] = {};  // four chains of additions that truncate: the shorter the better
  const auto add = [&](const uint4* vector, float(&first)[4], float(&second)[4]) {
    std::uint32_t x[4];
    ptx::ldmatrix_x4_trans(x, vector);
    ptx::mma_m16n8k16<T>(first, {x[0], one[0], x[1], one[1]}, {x[0], x[1]});
    ptx::mma_m16n8k16<T>(second, {x[2], one[2], x[3], one[3]}, {x[2], x[3]});
  };
  for (; tile + plan.column_parts < plan.tiles_per_block; tile += 2 * plan.column_parts, from += 2 * step) {
    add(from, d[0], d[1]);
    add(from + step, d[2], d[3]);
  }
  if (tile < plan.tiles_per_block) add(from, d[0], d[1]);
  float sums[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = (d[0][i] + d[1][i]) + (d[2][i] + d[3][i]);
  // The lane's two columns are 2 (lane % 4) and the next.
  return lane_idx / 4 % 2 == 0 ? float2{sums[2], sums[0]} : float2{sums[3], sums[1]};
}

// Sums of a vector's channels by additions, about their pivots if any, over every pixel of the lane: pairs of a sum and a
// sum of squares, of which every lane returns one (see sum_over_lanes).
template <class T, bool kPivots>
__device__ __forceinline__ float added_pixels(const TensorCorePlan& plan, const uint4* from, int step, int pixel,
                                              int pixels, const float* pivots, int lane_idx) {
  constexpr int kVec = kVector<T>;
  float sums[2 * kVec] = {};
#pragma unroll 4
  for (; pixel < pixels; pixel += plan.column_parts * kTile, from += step) {
    float values[kVec];
    unpack<T>(*from, values);
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      if constexpr (kPivots) values[i] -= pivots[i];
      sums[2 * i] += values[i];
      sums[2 * i + 1] = fmaf(values[i], values[i], sums[2 * i + 1]);
    }
  }
  return sum_over_lanes<2 * kVec>(sums, lane_idx);
}

// Sums of the block's channels, into sums.partial: a warp takes a column of vectors, or a part of it.
template <class T, bool kPivots>
__device__ __forceinline__ void sum_channels(const TensorCorePlan& plan, const uint4* slab, int pixels, int thread_idx,
                                             const TensorCoreSums& sums) {
  constexpr int kVec = kVector<T>;
  const int lane_idx = thread_idx & 31;
  const int step = plan.column_parts * kTile * plan.row_vectors;
  for (int task = thread_idx >> 5; task < plan.row_vectors * plan.column_parts; task += plan.threads >> 5) {
    const int part = divided(task, plan.reciprocal_row);
    const int column = task - part * plan.row_vectors;
    const uint4* const from = slab + swizzled(plan, part * kTile + lane_idx, column);
    float2* const to = sums.partial + part * plan.channels + column * kVec;
    if constexpr (sizeof(T) == 2 && !kPivots) {
      const float2 sum = multiplied_tiles<T>(plan, from, step, part, lane_idx);
      if (lane_idx % 4 == lane_idx / 8) to[lane_idx / 4] = sum;
    } else {
      constexpr int kSpan = 32 / (2 * kVec);
      const float* const pivots = sums.pivot + column * kVec;
      const float sum = added_pixels<T, kPivots>(plan, from, step, part * kTile + lane_idx, pixels, pivots, lane_idx);
      if (lane_idx % kSpan == 0) reinterpret_cast<float*>(to)[lane_idx / kSpan] = sum;
    }
  }
}

}  // namespace ladder::groupnorm::tensor_core

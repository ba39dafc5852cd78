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

// Sums of 8 channels over every parts-th tile from `tile` on, `step` vectors apart, by the tensor core. Each lane points at
// the vector of its pixel; a transposed matrix has a row for each channel. (x, ones) times x^T, 16 pixels at a time.
// Lane 4 i + i / 2 has channel i's on the diagonal and returns them; others return anything.
template <class T>
__device__ __forceinline__ float2 multiplied_tiles(const Plan& plan, const uint4* from, int step, int tile, int lane) {
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
  for (; tile + plan.parts < plan.tiles; tile += 2 * plan.parts, from += 2 * step) {
    add(from, d[0], d[1]);
    add(from + step, d[2], d[3]);
  }
  if (tile < plan.tiles) add(from, d[0], d[1]);
  float sums[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] = (d[0][i] + d[1][i]) + (d[2][i] + d[3][i]);
  // The lane's two columns are 2 (lane % 4) and the next.
  return lane / 4 % 2 == 0 ? float2{sums[2], sums[0]} : float2{sums[3], sums[1]};
}

// Sums of a vector's channels by additions, about their pivots if any, over every pixel of the lane: pairs of a sum and a
// sum of squares, of which every lane returns one (see sum_over_lanes).
template <class T, bool kPivots>
__device__ __forceinline__ float added_pixels(const Plan& plan, const uint4* from, int step, int pixel, int pixels,
                                              const float* pivots, int lane) {
  constexpr int kVec = kVector<T>;
  float sums[2 * kVec] = {};
#pragma unroll 4
  for (; pixel < pixels; pixel += plan.parts * kTile, from += step) {
    float values[kVec];
    unpack<T>(*from, values);
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      if constexpr (kPivots) values[i] -= pivots[i];
      sums[2 * i] += values[i];
      sums[2 * i + 1] = fmaf(values[i], values[i], sums[2 * i + 1]);
    }
  }
  return sum_over_lanes<2 * kVec>(sums, lane);
}

// Sums of the block's channels, into sums.parts: a warp takes a column of vectors, or a part of it.
template <class T, bool kPivots>
__device__ __forceinline__ void sum_channels(const Plan& plan, const uint4* slab, int pixels, int thread,
                                             const Sums& sums) {
  constexpr int kVec = kVector<T>;
  const int lane = thread & 31;
  const int step = plan.parts * kTile * plan.row;
  for (int task = thread >> 5; task < plan.row * plan.parts; task += plan.threads >> 5) {
    const int part = divided(task, plan.by_row);
    const int column = task - part * plan.row;
    const uint4* const from = slab + swizzled(plan, part * kTile + lane, column);
    float2* const to = sums.parts + part * plan.channels + column * kVec;
    if constexpr (sizeof(T) == 2 && !kPivots) {
      const float2 sum = multiplied_tiles<T>(plan, from, step, part, lane);
      if (lane % 4 == lane / 8) to[lane / 4] = sum;
    } else {
      constexpr int kSpan = 32 / (2 * kVec);
      const float* const pivots = sums.pivot + column * kVec;
      const float sum = added_pixels<T, kPivots>(plan, from, step, part * kTile + lane, pixels, pivots, lane);
      if (lane % kSpan == 0) reinterpret_cast<float*>(to)[lane / kSpan] = sum;
    }
  }
}

}  // namespace ladder::groupnorm::tensor_core

// Pooling in registers, where a lane holds two neighbouring pixels of a convolution row (row_ring.h): the next lane's
// first pixel completes a window of three, and a running maximum down the rows completes a pooled one.
#pragma once

#include "dev/conv_stem/row_ring.h"
#include "dev/conv_stem/strips.h"
#include "dev/ptx/maximum.h"

namespace ladder::conv_stem {

inline OutputRows pooled_rows(const Problem& p) { return {p.n, ceil_div(p.pool_w(), kTilePooled), p.pool_h()}; }

// sum(i): the lane's sum i of a row, as wgmma leaves it. Value 2j + e is the largest of three pixels' column 8j + 2t + e.
template <int kN, class Sum>
__device__ __forceinline__ void pool_columns(Sum&& sum, float (&pooled)[kN / 4]) {
  const int next_lane = lane_of_next_pair();
#pragma unroll
  for (int j = 0; j < kN / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float first = sum(4 * j + e);
      const float third = __shfl_sync(0xffffffffu, first, next_lane);
      pooled[2 * j + e] = ptx::maximum(ptx::maximum(first, sum(4 * j + 2 + e)), third);
    }
  }
}

// max(0, largest + bias) of a pooled row, 16 bytes a store. Rounding is monotone: a bias may be added after the maximum.
template <int kN>
__device__ __forceinline__ void store_pooled(const Problem& p, const float (&largest)[kN / 4], const float* biases,
                                             int image, int row, int tile, int channel0, float* y) {
  const int col = tile * kTilePooled + lane_col() / 2;
  if (lane_pair() == kWarpPooled || col >= p.pool_w()) return;
  float* const pixel = y + static_cast<long long>((image * p.pool_h() + row) * p.pool_w() + col) * p.k + channel0;
#pragma unroll
  for (int i = 0; i < kN / 16; ++i) {
    const int channel = 16 * i + threadIdx.x % 4 * 4;
    if (channel0 + channel >= p.k) break;
    const float4 bias = *reinterpret_cast<const float4*>(biases + channel);
    *reinterpret_cast<float4*>(pixel + channel) = {
        ptx::maximum(largest[4 * i] + bias.x, 0.0f), ptx::maximum(largest[4 * i + 1] + bias.y, 0.0f),
        ptx::maximum(largest[4 * i + 2] + bias.z, 0.0f), ptx::maximum(largest[4 * i + 3] + bias.w, 0.0f)};
  }
}

// The largest of a pooled row so far: convolution rows enter one after another, from an even one on.
template <int kN>
struct PooledRow {
  float largest[kN / 4];

  // After `pooled`, the columns' largest of convolution row `row`, entered: done(), if it ends a pooled row. Even rows end one
  // and begin the next.
  template <class Done>
  __device__ __forceinline__ void enter(int row, bool is_first, const float (&pooled)[kN / 4], Done&& done) {
    if (!is_first) {
#pragma unroll
      for (int i = 0; i < kN / 4; ++i) largest[i] = ptx::maximum(largest[i], pooled[i]);
      if (row % 2 == 0) done();
    }
    if (row % 2 == 0) {
#pragma unroll
      for (int i = 0; i < kN / 4; ++i) largest[i] = pooled[i];
    }
  }
};

}  // namespace ladder::conv_stem

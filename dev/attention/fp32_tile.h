// Tiles of tokens in shared memory as fp32, whatever they are stored as, and products of two of them by fused multiply-adds:
// what the versions without tensor cores are made of.
#pragma once

#include "core/numeric.h"
#include "dev/attention/attention.h"
#include "dev/common/vectors.h"

namespace ladder::attention {

constexpr int kTileThreads = 256;

// Floats from a token to the next: 16 bytes of padding, so that eight tokens' float4 lie in different banks.
template <int kD>
constexpr int kTilePitch = kD + 4;

// Tokens [first, first + kTokens) of one head, `pitch` elements apart, to tile[token][kTilePitch]; zeros from token `end` on.
template <class T, int kD, int kTokens>
__device__ __forceinline__ void load_tile(float* tile, const T* head, int pitch, int first, int end) {
  constexpr int kRuns = kD / kVector<T>;  // 16 bytes each
  static_assert(kTokens * kRuns % kTileThreads == 0 || kTileThreads % (kTokens * kRuns) == 0);
#pragma unroll
  for (int run = threadIdx.x; run < kTokens * kRuns; run += kTileThreads) {
    const int token = run / kRuns;
    const int channel = run % kRuns * kVector<T>;
    float values[kVector<T>] = {};
    if (first + token < end)
      unpack<T>(*reinterpret_cast<const uint4*>(head + (first + token) * pitch + channel), values);
    float* const to = tile + token * kTilePitch<kD> + channel;
#pragma unroll
    for (int i = 0; i < kVector<T>; i += 4) {
      *reinterpret_cast<float4*>(to + i) = {values[i], values[i + 1], values[i + 2], values[i + 3]};
    }
  }
}

// sum[r][c] = row r of a times row c of b, over kD channels; rows lie `pitch` floats apart.
template <int kD, int kRows, int kColumns>
__device__ __forceinline__ void tile_product(float (&sum)[kRows][kColumns], const float* a, int a_pitch, const float* b,
                                             int b_pitch) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sum[r][c] = 0;
  }
  for (int x = 0; x < kD; x += 4) {
    float4 columns[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) columns[c] = *reinterpret_cast<const float4*>(b + c * b_pitch + x);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float4 row = *reinterpret_cast<const float4*>(a + r * a_pitch + x);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        sum[r][c] += row.x * columns[c].x + row.y * columns[c].y + row.z * columns[c].z + row.w * columns[c].w;
      }
    }
  }
}

}  // namespace ladder::attention

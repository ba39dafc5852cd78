// What the blocks of a cluster have in the same place of their shared memory, added in the order of their ranks; and the way
// of a warpgroup's sums to that place.
#pragma once

#include "core/occupancy.h"
#include "dev/ptx/ld_shared_cluster.h"

namespace ladder {

__device__ __forceinline__ float sum_of(float a, float b) { return a + b; }
__device__ __forceinline__ float4 sum_of(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// Of a cluster of `ranks` blocks, after a cluster barrier; V is float or float4. All loads are in flight at once, up to those
// of the most blocks that any card runs as a cluster.
template <class V>
__device__ __forceinline__ V sum_over_cluster(V* mine, int ranks) {
  V parts[kMaxClusterBlocks];
#pragma unroll
  for (int rank = 0; rank < kMaxClusterBlocks; ++rank)
    parts[rank] = rank < ranks ? ptx::ld_shared_cluster(ptx::mapa(mine, rank)) : V{};
  V sum = parts[0];
#pragma unroll
  for (int rank = 1; rank < kMaxClusterBlocks; ++rank) sum = sum_of(sum, parts[rank]);
  return sum;
}

// wgmma's sums of 64 rows x kColumns into rows of shared memory, by the warp that has 16 of them from `row0` on; zeros if
// there were none to make.
//
// NOTE: the padding, 8 floats: the 16 float2 of a half-warp meet no bank twice.
template <int kColumns>
constexpr int kSumsPitch = kColumns + 8;

template <int kColumns>
__device__ __forceinline__ void put_wgmma_sums(float* rows, const float (&sum)[kColumns / 2], int row0, bool any) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* const pair = sum + 4 * j + 2 * half;
      float* const to = rows + (row0 + lane / 4 + 8 * half) * kSumsPitch<kColumns> + 8 * j + lane % 4 * 2;
      *reinterpret_cast<float2*>(to) = any ? float2{pair[0], pair[1]} : float2{0, 0};
    }
  }
}

}  // namespace ladder

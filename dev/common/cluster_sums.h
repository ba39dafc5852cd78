// Sums over a cluster: the blocks' values at the same offset of shared memory are added in rank order. Also the store
// of a warpgroup's accumulators to shared memory.
#pragma once

#include "core/occupancy.h"
#include "dev/ptx/ld_shared_cluster.h"

namespace ladder {

__device__ __forceinline__ float sum_of(float a, float b) { return a + b; }
__device__ __forceinline__ float4 sum_of(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// Returns the sum over a cluster of `ranks` blocks; to be called after a cluster barrier. V is float or float4. All
// loads are in flight at once, up to those of the largest cluster that any card runs.
template <class V>
__device__ __forceinline__ V sum_over_cluster(V* local, int ranks) {
  V parts[kMaxClusterBlocks];
#pragma unroll
  for (int rank = 0; rank < kMaxClusterBlocks; ++rank)
    parts[rank] = rank < ranks ? ptx::ld_shared_cluster(ptx::mapa(local, rank)) : V{};
  V sum = parts[0];
#pragma unroll
  for (int rank = 1; rank < kMaxClusterBlocks; ++rank) sum = sum_of(sum, parts[rank]);
  return sum;
}

// Store wgmma's accumulators of 64 rows x kColumns as rows of shared memory. The calling warp has 16 rows, from `row0`
// on. It stores zeros if `any` is false, when it had nothing to multiply.
//
// NOTE: the padding of 8 floats keeps the 16 float2 of a half-warp in different banks.
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

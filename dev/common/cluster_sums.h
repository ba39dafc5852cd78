// What the blocks of a cluster have in the same place of their shared memory, added in the order of their ranks.
#pragma once

#include "core/cluster_shape.h"
#include "core/device.h"
#include "dev/ptx/cluster.h"

namespace ladder {

// Of a cluster of `ranks` blocks, behind a cluster barrier. All loads are under way at once, up to those of the most blocks
// that any card runs as a cluster.
__device__ __forceinline__ float sum_over_cluster(float* mine, int ranks) {
  float parts[kMaxPortableClusterBlocks];
#pragma unroll
  for (int rank = 0; rank < static_cast<int>(kMaxPortableClusterBlocks); ++rank)
    parts[rank] = rank < ranks ? ptx::ld_shared_cluster(ptx::mapa(mine, rank)) : 0.0f;
  float sum = parts[0];
#pragma unroll
  for (int rank = 1; rank < static_cast<int>(kMaxPortableClusterBlocks); ++rank) sum += parts[rank];
  return sum;
}

__device__ __forceinline__ float4 sum_over_cluster(float4* mine, int ranks) {
  float4 parts[kMaxPortableClusterBlocks];
#pragma unroll
  for (int rank = 0; rank < static_cast<int>(kMaxPortableClusterBlocks); ++rank)
    parts[rank] = rank < ranks ? ptx::ld_shared_cluster(ptx::mapa(mine, rank)) : float4{0, 0, 0, 0};
  float4 sum = parts[0];
#pragma unroll
  for (int rank = 1; rank < static_cast<int>(kMaxPortableClusterBlocks); ++rank) {
    const float4 v = parts[rank];
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
  return sum;
}

}  // namespace ladder

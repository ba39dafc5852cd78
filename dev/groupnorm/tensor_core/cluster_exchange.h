// Sums of groups from those of channels, and their exchange between the blocks of a cluster (v09 and later).
#pragma once

#include "core/device.h"
#include "dev/groupnorm/tensor_core/tensor_core_slab.h"
#include "dev/ptx/st_async.h"

namespace ladder::groupnorm::tensor_core {

// Sums of a group of the block.
__device__ __forceinline__ float2 sum_group(const TensorCorePlan& plan, const TensorCoreSums& sums, int group) {
  float2 sum{0, 0};
#pragma unroll 1
  for (int part = 0; part < plan.column_parts; ++part) {
    const float2* const channels = sums.partial + part * plan.channels + group * plan.channels_per_group;
#pragma unroll 2
    for (int i = 0; i < plan.channels_per_group; ++i) sum.x += channels[i].x, sum.y += channels[i].y;
  }
  return sum;
}

// Stores the sums of this block's groups in row `cta_rank` of round `round` of every block of the cluster, and waits for those of
// the others. Round 0 is about zero, round 1 about pivots.
__device__ __forceinline__ void exchange_groups(const TensorCorePlan& plan, int cta_rank, int thread_idx,
                                                const TensorCoreSums& sums, int round) {
  ptx::Mbarrier* const arrived = &sums.arrived[round];
  float2* const ranks = sums.ranks + round * cluster_of(plan) * plan.groups;
  const int count = plan.groups << plan.log_cluster;
  if (thread_idx == 0) ptx::mbarrier_arrive_expect_tx(arrived, count * sizeof(float2));
  for (int i = thread_idx; i < count; i += plan.threads) {
    const int group = i >> plan.log_cluster;
    const int to = i & (cluster_of(plan) - 1);
    ptx::st_async(ptx::mapa(ranks + cta_rank * plan.groups + group, to), sum_group(plan, sums, group),
                  ptx::mapa(arrived, to));
  }
  ptx::mbarrier_wait_cluster(arrived, 0);
}

// Sums of a group over the full slab, which has at most kMaxCluster blocks.
template <int kMaxCluster>
__device__ __forceinline__ float2 sum_ranks(const TensorCorePlan& plan, const TensorCoreSums& sums, int round,
                                            int group) {
  if (plan.log_cluster == 0) return sum_group(plan, sums, group);
  const float2* const ranks = sums.ranks + round * cluster_of(plan) * plan.groups;
  float2 sum{0, 0};
#pragma unroll
  for (int i = 0; i < kMaxCluster; ++i) {
    const float2 part = i < cluster_of(plan) ? ranks[i * plan.groups + group] : float2{0, 0};
    sum.x += part.x, sum.y += part.y;
  }
  return sum;
}

}  // namespace ladder::groupnorm::tensor_core

// Exchange of sums in a cluster (v12 and later). A block sends its sums of every group to all blocks, and its sums of a
// channel to the channel's owner, the block of rank channel % cluster.
#pragma once

#include "dev/groupnorm/dz/dz_slab.h"
#include "dev/groupnorm/dz/flagged_rows.h"
#include "dev/ptx/st_async.h"

namespace ladder::groupnorm::resident_dz {

// Shared memory after the slab.
struct GroupSums {
  float* scale;            // [chunk], rstd * gamma
  float2* partial;         // [partial_rows][chunk], sums of dz and dz * (x - mean)
  float2* groups;          // [groups][pitch], each rank's sums of rstd * gamma times dz and dz * (x - mean)
  float2* channels;        // [owned][cluster], the same without that factor, of the channels that the block owns
  ptx::Mbarrier* arrived;  // counts the bytes that the cluster sends
  float* mean;             // [groups]
  float* rstd;             // [groups]

  // Returns the number of the chunk's channels that a block owns; rank 0 owns the most.
  static __host__ __device__ int owned(const DzPlan& plan, int cta_rank) {
    return plan.log_cluster > 0 ? (plan.chunk - cta_rank + plan.cluster() - 1) >> plan.log_cluster : 0;
  }
  // Pitch of a row of `groups`, in float2: two more than the ranks, so that lanes that read several rows access
  // different banks.
  static __host__ __device__ int pitch(const DzPlan& plan) { return plan.log_cluster == 0 ? 1 : plan.cluster() + 2; }
  static __host__ __device__ int bytes(const DzPlan& plan) {
    return plan.chunk * (4 + 8 * plan.partial_rows) +
           8 * (plan.groups * pitch(plan) + (owned(plan, 0) << plan.log_cluster)) + 8 * plan.groups +
           static_cast<int>(sizeof(ptx::Mbarrier));
  }
  __device__ __forceinline__ GroupSums(unsigned char* smem, const DzPlan& plan) {
    scale = reinterpret_cast<float*>(smem);
    partial = reinterpret_cast<float2*>(scale + plan.chunk);
    groups = partial + plan.partial_rows * plan.chunk;
    channels = groups + plan.groups * pitch(plan);
    arrived = reinterpret_cast<ptx::Mbarrier*>(channels + (owned(plan, 0) << plan.log_cluster));
    mean = reinterpret_cast<float*>(arrived + 1);
    rstd = mean + plan.groups;
  }
};

// Returns channel / channels_per_group. A chunk has at most 1024 channels, four for each thread, so the product is exact enough.
__device__ __forceinline__ int group_of(const DzPlan& plan, int channel) {
  return channel * plan.reciprocal_width >> 20;
}

// Calls f(i, group) for each of a thread's channels.
template <class F>
__device__ __forceinline__ void for_channels(const DzPlan& plan, const DzOffset& tile, const F& f) {
  int group = group_of(plan, tile.column * kQuad);
  int next = (group + 1) * plan.channels_per_group - tile.column * kQuad;
#pragma unroll
  for (int i = 0; i < kQuad; ++i) {
    if (i == next) ++group, next += plan.channels_per_group;
    f(i, group);
  }
}

struct ChannelConstants {  // constants of a channel of the chunk
  float mean, rstd, gamma;
};
template <class P>
__device__ __forceinline__ ChannelConstants fetch_channel(const Problem& p, const Backward::Tensors& t,
                                                          const DzPlan& plan, const DzOffset& tile, int channel) {
  const int from = tile.image * p.g + tile.chunk * plan.groups + group_of(plan, channel);
  return {.mean = t.mean[from], .rstd = t.rstd[from], .gamma = gamma_of<P>(t, tile.chunk * plan.chunk + channel)};
}

// Stores a channel's sums in `rows` [n][c], as terms of dgamma and dbeta.
__device__ __forceinline__ void store_channel_terms(const Problem& p, const DzPlan& plan, const DzOffset& tile,
                                                    const GroupSums& smem, FlaggedRow* rows, int channel, float2 sum) {
  FlaggedRow& row = rows[tile.image * p.c + tile.chunk * plan.chunk + channel];
  row.dbeta = flagged(sum.x);
  row.dgamma = flagged(sum.y * smem.rstd[group_of(plan, channel)]);
}

// Adds up the block's partial sums of the groups' channels and sends the results; a block without a cluster keeps them.
// A group gets no more lanes than have work, so that the first warps do it all.
template <bool kCluster>
__device__ __forceinline__ void send_groups(const Problem& p, const DzPlan& plan, const DzOffset& tile,
                                            const GroupSums& smem, FlaggedRow* rows) {
  const int team = 1 << plan.log_channels;
  const int member = tile.lane_idx & (team - 1);
  const int teams = plan.threads() >> plan.log_channels;
#pragma unroll 1
  for (int first = tile.warp_idx * 32 >> plan.log_channels; first < plan.groups; first += teams) {
    const int group = first + (tile.lane_idx >> plan.log_channels);
    float2 sum{0, 0};
    if (group < plan.groups) {
#pragma unroll 1
      for (int i = member; i < plan.channels_per_group; i += team) {
        const int channel = group * plan.channels_per_group + i;
        const float2 local_sum = sum_column(smem.partial, plan.partial_rows, plan.chunk, channel);
        sum.x = fmaf(smem.scale[channel], local_sum.x, sum.x), sum.y = fmaf(smem.scale[channel], local_sum.y, sum.y);
        if (!rows) continue;
        if constexpr (kCluster) {
          const int to = channel & (plan.cluster() - 1);
          float2* const slot = smem.channels + (channel & -plan.cluster()) + tile.cta_rank;
          ptx::st_async(ptx::mapa(slot, to), local_sum, ptx::mapa(smem.arrived, to));
        } else {
          store_channel_terms(p, plan, tile, smem, rows, channel, local_sum);
        }
      }
    }
    sum = add_lanes(sum, team);
    if (group >= plan.groups) continue;
    float2* const slot = smem.groups + group * GroupSums::pitch(plan) + tile.cta_rank;
    if constexpr (kCluster) {
#pragma unroll 4
      for (int to = member; to < plan.cluster(); to += team) {
        ptx::st_async(ptx::mapa(slot, to), sum, ptx::mapa(smem.arrived, to));
      }
    } else if (member == 0) {
      *slot = sum;
    }
  }
}

// Returns the correction of the lane's group. The lanes of each warp split the rows of all groups, 1 << log_ranks lanes
// a group.
__device__ __forceinline__ Correction correction_of_lane(const DzPlan& plan, const DzOffset& tile,
                                                         const GroupSums& smem) {
  const int team = 1 << plan.log_ranks;
  const int group = min(tile.lane_idx >> plan.log_ranks, plan.groups - 1);
  const float2* const ranks = smem.groups + group * GroupSums::pitch(plan);
  float2 sum{0, 0};
#pragma unroll 4
  for (int cta_rank = tile.lane_idx & (team - 1); cta_rank < plan.cluster(); cta_rank += team) {
    sum.x += ranks[cta_rank].x, sum.y += ranks[cta_rank].y;
  }
  sum = add_lanes(sum, team);
  return {.offset = -plan.inverse_m * sum.x, .slope = -plan.inverse_m * smem.rstd[group] * smem.rstd[group] * sum.y};
}

// Returns the correction of `group`, shuffled from a lane that has it. Called by all lanes of a warp.
__device__ __forceinline__ Correction correction_of_group(const DzPlan& plan, const Correction& lane_correction,
                                                          int group) {
  return {.offset = __shfl_sync(~0u, lane_correction.offset, group << plan.log_ranks),
          .slope = __shfl_sync(~0u, lane_correction.slope, group << plan.log_ranks)};
}

// Shuffles the corrections of the thread's channels into offset and slope.
__device__ __forceinline__ void shuffle_corrections(const DzPlan& plan, const DzOffset& tile,
                                                    const Correction& lane_correction, float (&offset)[kQuad],
                                                    float (&slope)[kQuad]) {
  const auto take = [&](int i, int group) {
    const Correction correction = correction_of_group(plan, lane_correction, group);
    offset[i] = correction.offset, slope[i] = correction.slope;
  };
  if (plan.channels_per_group % kQuad == 0) {
    take(0, group_of(plan, tile.column * kQuad));
#pragma unroll
    for (int i = 1; i < kQuad; ++i) offset[i] = offset[0], slope[i] = slope[0];
  } else {
    for_channels(plan, tile, take);
  }
}
__device__ __forceinline__ void add_ranks(const DzPlan& plan, const DzOffset& tile, const GroupSums& smem,
                                          float (&offset)[kQuad], float (&slope)[kQuad]) {
  shuffle_corrections(plan, tile, correction_of_lane(plan, tile, smem), offset, slope);
}

}  // namespace ladder::groupnorm::resident_dz

// Exchange of sums in a cluster (v12 and later). A block sends its sums of every group to all blocks, and its sums of a
// channel to the channel's owner, the block of rank channel % cluster.
#pragma once

#include "dev/groupnorm/dz/dz_slab.h"
#include "dev/groupnorm/dz/flagged_rows.h"
#include "dev/ptx/st_async.h"

namespace ladder::groupnorm::dz_kept {

// Shared memory after the slab.
struct GroupSums {
  float* scale;            // [chunk], rstd * gamma
  float2* parts;           // [parts][chunk], sums of dz and dz * (x - mean)
  float2* groups;          // [groups][pitch], each rank's sums of rstd * gamma times dz and dz * (x - mean)
  float2* channels;        // [owned][cluster], each rank's sums of dz and dz * (x - mean), of the block's own channels
  ptx::Mbarrier* arrived;  // counts the bytes that the cluster sends
  float* mean;             // [groups]
  float* rstd;             // [groups]

  // Returns the number of the chunk's channels that a block owns; rank 0 owns the most.
  static __host__ __device__ int owned(const Plan& plan, int rank) {
    return plan.log_cluster > 0 ? (plan.chunk - rank + plan.cluster() - 1) >> plan.log_cluster : 0;
  }
  // Pitch of a row of `groups`, in float2: two more than the ranks, so that lanes that read several rows access
  // different banks.
  static __host__ __device__ int pitch(const Plan& plan) { return plan.log_cluster == 0 ? 1 : plan.cluster() + 2; }
  static __host__ __device__ int bytes(const Plan& plan) {
    return plan.chunk * (4 + 8 * plan.parts) + 8 * (plan.groups * pitch(plan) + (owned(plan, 0) << plan.log_cluster)) +
           8 * plan.groups + static_cast<int>(sizeof(ptx::Mbarrier));
  }
  __device__ __forceinline__ GroupSums(unsigned char* smem, const Plan& plan) {
    scale = reinterpret_cast<float*>(smem);
    parts = reinterpret_cast<float2*>(scale + plan.chunk);
    groups = parts + plan.parts * plan.chunk;
    channels = groups + plan.groups * pitch(plan);
    arrived = reinterpret_cast<ptx::Mbarrier*>(channels + (owned(plan, 0) << plan.log_cluster));
    mean = reinterpret_cast<float*>(arrived + 1);
    rstd = mean + plan.groups;
  }
};

// Returns channel / width. A chunk has at most 1024 channels, four for each thread, so the product is exact enough.
__device__ __forceinline__ int group_of(const Plan& plan, int channel) { return channel * plan.by_width >> 20; }

// Calls f(i, group) for each of a thread's channels.
template <class F>
__device__ __forceinline__ void for_channels(const Plan& plan, const Place& place, const F& f) {
  int group = group_of(plan, place.column * kQuad);
  int next = (group + 1) * plan.width - place.column * kQuad;
#pragma unroll
  for (int i = 0; i < kQuad; ++i) {
    if (i == next) ++group, next += plan.width;
    f(i, group);
  }
}

struct Fetched {  // constants of a channel of the chunk
  float mean, rstd, gamma;
};
template <class P>
__device__ __forceinline__ Fetched fetch_channel(const Problem& p, const Backward::Tensors& t, const Plan& plan,
                                                 const Place& place, int channel) {
  const int from = place.image * p.g + place.chunk * plan.groups + group_of(plan, channel);
  return {.mean = t.mean[from], .rstd = t.rstd[from], .gamma = gamma_of<P>(t, place.chunk * plan.chunk + channel)};
}

// Stores a channel's sums in `rows` [n][c], as terms of dgamma and dbeta.
__device__ __forceinline__ void leave_channel(const Problem& p, const Plan& plan, const Place& place,
                                              const GroupSums& smem, FlaggedRow* rows, int channel, float2 sum) {
  FlaggedRow& row = rows[place.image * p.c + place.chunk * plan.chunk + channel];
  row.dbeta = flagged(sum.x);
  row.dgamma = flagged(sum.y * smem.rstd[group_of(plan, channel)]);
}

// Adds up the block's partial sums of the groups' channels and sends the results; a block without a cluster keeps them.
// A group gets no more lanes than have work, so that the first warps do it all.
template <bool kCluster>
__device__ __forceinline__ void send_groups(const Problem& p, const Plan& plan, const Place& place,
                                            const GroupSums& smem, FlaggedRow* rows) {
  const int team = 1 << plan.log_channels;
  const int member = place.lane & (team - 1);
  const int teams = plan.threads() >> plan.log_channels;
#pragma unroll 1
  for (int first = place.warp * 32 >> plan.log_channels; first < plan.groups; first += teams) {
    const int group = first + (place.lane >> plan.log_channels);
    float2 sum{0, 0};
    if (group < plan.groups) {
#pragma unroll 1
      for (int i = member; i < plan.width; i += team) {
        const int channel = group * plan.width + i;
        const float2 own = sum_column(smem.parts, plan.parts, plan.chunk, channel);
        sum.x = fmaf(smem.scale[channel], own.x, sum.x), sum.y = fmaf(smem.scale[channel], own.y, sum.y);
        if (!rows) continue;
        if constexpr (kCluster) {
          const int to = channel & (plan.cluster() - 1);
          float2* const at = smem.channels + (channel & -plan.cluster()) + place.rank;
          ptx::st_async(ptx::mapa(at, to), own, ptx::mapa(smem.arrived, to));
        } else {
          leave_channel(p, plan, place, smem, rows, channel, own);
        }
      }
    }
    sum = add_lanes(sum, team);
    if (group >= plan.groups) continue;
    float2* const at = smem.groups + group * GroupSums::pitch(plan) + place.rank;
    if constexpr (kCluster) {
#pragma unroll 4
      for (int to = member; to < plan.cluster(); to += team) {
        ptx::st_async(ptx::mapa(at, to), sum, ptx::mapa(smem.arrived, to));
      }
    } else if (member == 0) {
      *at = sum;
    }
  }
}

// Returns the correction of the lane's group. The lanes of each warp split the rows of all groups, 1 << log_ranks lanes
// a group.
__device__ __forceinline__ Correction correction_of_lane(const Plan& plan, const Place& place, const GroupSums& smem) {
  const int team = 1 << plan.log_ranks;
  const int group = min(place.lane >> plan.log_ranks, plan.groups - 1);
  const float2* const ranks = smem.groups + group * GroupSums::pitch(plan);
  float2 sum{0, 0};
#pragma unroll 4
  for (int rank = place.lane & (team - 1); rank < plan.cluster(); rank += team) {
    sum.x += ranks[rank].x, sum.y += ranks[rank].y;
  }
  sum = add_lanes(sum, team);
  return {.offset = -plan.inverse_m * sum.x, .slope = -plan.inverse_m * smem.rstd[group] * smem.rstd[group] * sum.y};
}

// Returns the correction of `group`, shuffled from a lane that has it. Called by all lanes of a warp.
__device__ __forceinline__ Correction correction_of_group(const Plan& plan, const Correction& of_lane, int group) {
  return {.offset = __shfl_sync(~0u, of_lane.offset, group << plan.log_ranks),
          .slope = __shfl_sync(~0u, of_lane.slope, group << plan.log_ranks)};
}

// Shuffles the corrections of the thread's channels into offset and slope.
__device__ __forceinline__ void take_corrections(const Plan& plan, const Place& place, const Correction& of_lane,
                                                 float (&offset)[kQuad], float (&slope)[kQuad]) {
  const auto take = [&](int i, int group) {
    const Correction correction = correction_of_group(plan, of_lane, group);
    offset[i] = correction.offset, slope[i] = correction.slope;
  };
  if (plan.width % kQuad == 0) {
    take(0, group_of(plan, place.column * kQuad));
#pragma unroll
    for (int i = 1; i < kQuad; ++i) offset[i] = offset[0], slope[i] = slope[0];
  } else {
    for_channels(plan, place, take);
  }
}
__device__ __forceinline__ void add_ranks(const Plan& plan, const Place& place, const GroupSums& smem,
                                          float (&offset)[kQuad], float (&slope)[kQuad]) {
  take_corrections(plan, place, correction_of_lane(plan, place, smem), offset, slope);
}

}  // namespace ladder::groupnorm::dz_kept

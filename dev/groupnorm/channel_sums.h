// Exchange of channel sums in a cluster, every block to all blocks, and the correction of dx by them (v09).
#pragma once

#include "dev/groupnorm/dz_slab.h"
#include "dev/ptx/st_async.h"

namespace ladder::groupnorm::dz_kept {

// Shared memory after the slab.
struct ChannelSums {
  float* mean;             // [chunk]
  float* rstd;             // [chunk]
  float* scale;            // [chunk], rstd * gamma
  float2* parts;           // [parts][chunk], sums of dz and dz * (x - mean)
  float2* exchange;        // [cluster][chunk], the sums of all blocks
  ptx::Mbarrier* arrived;  // counts the bytes that the cluster sends
  // Aliases of the first two parts: the image's sums times rstd * gamma, and the correction of each channel's group.
  float2* weighted;         // [chunk]
  Correction* corrections;  // [chunk]

  static __host__ __device__ int room(const Plan& plan) { return plan.parts < 2 ? 2 : plan.parts; }
  static int bytes(const Plan& plan) {
    return plan.chunk * (12 + 8 * room(plan) + (plan.log_cluster > 0 ? 8 * plan.cluster() : 0)) +
           static_cast<int>(sizeof(ptx::Mbarrier));
  }
  __device__ __forceinline__ ChannelSums(unsigned char* smem, const Plan& plan) {
    mean = reinterpret_cast<float*>(smem);
    rstd = mean + plan.chunk;
    scale = reinterpret_cast<float*>(smem + 8 * plan.chunk);
    parts = reinterpret_cast<float2*>(scale + plan.chunk);
    exchange = parts + room(plan) * plan.chunk;
    arrived = reinterpret_cast<ptx::Mbarrier*>(exchange + plan.cluster() * plan.chunk);
    weighted = parts;
    corrections = reinterpret_cast<Correction*>(parts + plan.chunk);
  }
};

// Loads mean, rstd and rstd * gamma of the chunk's channels. Called by all threads; a barrier must follow.
template <class P = float>
__device__ __forceinline__ void load_channels(const Problem& p, const Backward::Tensors& t, const Plan& plan,
                                              const Place& place, const ChannelSums& smem) {
#pragma unroll 1
  for (int i = threadIdx.x; i < plan.chunk; i += plan.threads()) {
    const int group = place.image * p.g + place.chunk * plan.groups + i / plan.width;
    smem.rstd[i] = t.rstd[group];
    smem.mean[i] = t.mean[group];
    smem.scale[i] = smem.rstd[i] * gamma_of<P>(t, place.chunk * plan.chunk + i);
  }
}

// Sends the block's sums of every channel to all blocks of the cluster.
__device__ __forceinline__ void send_channels(const Plan& plan, const Place& place, const ChannelSums& smem) {
#pragma unroll 1
  for (int i = threadIdx.x; i < plan.chunk << plan.log_cluster; i += plan.threads()) {
    const int channel = i >> plan.log_cluster;
    const float2 sum = sum_column(smem.parts, plan.parts, plan.chunk, channel);
    const int to = i & (plan.cluster() - 1);
    ptx::st_async(ptx::mapa(smem.exchange + place.rank * plan.chunk + channel, to), sum, ptx::mapa(smem.arrived, to));
  }
}

// Computes the groups' corrections of dx from the image's channel sums, `sums` [count][chunk]. If `rows` is not null,
// the first block of the cluster stores the channels' totals there, for dgamma and dbeta.
__device__ __forceinline__ void correct_groups(const Problem& p, const Plan& plan, const Place& place,
                                               const ChannelSums& smem, const float2* sums, int count, float2* rows) {
#pragma unroll 1
  for (int i = threadIdx.x; i < plan.chunk; i += plan.threads()) {
    const float2 sum = sum_column(sums, count, plan.chunk, i);
    if (rows && place.rank == 0) rows[place.image * p.c + place.chunk * plan.chunk + i] = {sum.x, sum.y * smem.rstd[i]};
    smem.weighted[i] = {smem.scale[i] * sum.x, smem.scale[i] * sum.y};
  }
  __syncthreads();
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) * plan.width; i < plan.chunk; i += plan.threads() * plan.width) {
    float2 sum{0, 0};
#pragma unroll 2
    for (int c = i; c < i + plan.width; ++c) sum.x += smem.weighted[c].x, sum.y += smem.weighted[c].y;
    const Correction correction{.offset = -plan.inverse_m * sum.x,
                                .slope = -plan.inverse_m * smem.rstd[i] * smem.rstd[i] * sum.y};
#pragma unroll 2
    for (int c = i; c < i + plan.width; ++c) smem.corrections[c] = correction;
  }
  __syncthreads();
}

}  // namespace ladder::groupnorm::dz_kept

// Mean and rstd of a slab's groups (slab.h), from the sums of its threads; shared by v05 and v06.
//
// A thread adds up x - pivot and its square not for each channel but for each span: kSpan neighbouring channels of one
// group, 2 if groups have an even number of channels. The threads store their spans in shared memory, teams of lanes
// add up the spans of a group in a fixed order, and the blocks of a cluster exchange these sums.
#pragma once

#include "core/occupancy.h"
#include "dev/groupnorm/slab/slab.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/maximum.h"
#include "dev/ptx/st_shared_cluster.h"

namespace ladder::groupnorm {

// Shared memory of the sums, in this order: spans [channels / kSpan][pitch], partial sums of the cluster's blocks [8][groups],
// statistics [groups]. The pitch is odd for fewer bank conflicts.
__host__ __device__ inline int span_pitch(const SlabPlan& plan) { return plan.rows() | 1; }
__host__ __device__ inline int slab_groups(const Problem& p, const SlabPlan& plan) {
  return plan.channels / (p.c / p.g);
}
inline std::size_t slab_sums_bytes(const Problem& p, const SlabPlan& plan) {
  const int span = p.channels_per_group() % 2 == 0 ? 2 : 1;
  return sizeof(float2) * (plan.channels / span * span_pitch(plan) + (kMaxClusterBlocks + 1) * slab_groups(p, plan));
}

// Position of a block and its thread. Neighbouring clusters take neighbouring chunks of an image.
struct SlabOffset {
  int image, cta_rank, chunk_channel, column, row;
  int begin, end;  // pixels of the block
  int offset;      // offset in [n, h, w, c] of the thread's first vector

  __device__ __forceinline__ SlabOffset(const Problem& p, const SlabPlan& plan, int vector) {
    const int block = static_cast<int>(blockIdx.x);
    const int chunks = p.c / plan.channels;
    cta_rank = block % plan.cluster;
    chunk_channel = block / plan.cluster % chunks * plan.channels;
    image = block / plan.cluster / chunks;
    column = static_cast<int>(threadIdx.x) % plan.columns;
    row = static_cast<int>(threadIdx.x) / plan.columns;
    begin = min(cta_rank * plan.pixels_per_block, p.h * p.w);
    end = min(begin + plan.pixels_per_block, p.h * p.w);
    offset = (image * p.h * p.w + begin + row) * p.c + chunk_channel + column * vector;
  }
  __device__ __forceinline__ int num_pixels() const { return end - begin; }
};

// Returns the lanes of a warp that share a group: as many as the block has threads for, a power of two.
__device__ __forceinline__ int team_of(int threads, int groups) {
  int team = 32;
  while (team > 1 && team * groups > threads) team /= 2;
  return team;
}

// Adds up the sums of spans of all threads of the block and its cluster. Returns an array in shared memory with (mean less
// pivot, rstd) of each group of the chunk, which all threads may read.
template <class T, int kSpan, bool kCluster>
__device__ __forceinline__ const float2* slab_statistics(const Problem& p, const SlabPlan& plan, const SlabOffset& tile,
                                                         const float2 (&sums)[kVector<T> / kSpan],
                                                         unsigned char* smem) {
  constexpr int kSpans = kVector<T> / kSpan;
  const int groups = slab_groups(p, plan);
  const int pitch = span_pitch(plan);
  auto* const spans = reinterpret_cast<float2*>(smem);
  float2* const partial = spans + plan.channels / kSpan * pitch;
  float2* const statistics = partial + kMaxClusterBlocks * groups;
  const float inverse_m = 1.0f / static_cast<float>(p.h * p.w * (p.c / p.g));
  const auto finish = [&](float2 sum) {
    const float mean = sum.x * inverse_m;
    const float variance = ptx::maximum(fmaf(-mean, mean, sum.y * inverse_m), 0.0f);
    return float2{mean, rsqrtf(variance + p.eps)};
  };

#pragma unroll
  for (int i = 0; i < kSpans; ++i) spans[(tile.column * kSpans + i) * pitch + tile.row] = sums[i];
  __syncthreads();

  const int team = team_of(plan.threads(), groups);
  const int lane = static_cast<int>(threadIdx.x) % team;
  const int group_spans = p.c / p.g / kSpan;
  if constexpr (kCluster) {
    if (plan.cluster > 1) ptx::cluster_wait();  // all of the cluster's blocks have started
  }
  for (int first = 0; first < groups; first += plan.threads() / team) {  // the same for all threads: shuffles need it
    const int group = first + static_cast<int>(threadIdx.x) / team;
    float2 sum{0, 0};
    if (group < groups) {
      for (int i = lane; i < group_spans << plan.log_rows; i += team) {
        const int span = group * group_spans + (i >> plan.log_rows);
        const float2 term = spans[span * pitch + (i & (plan.rows() - 1))];
        sum.x += term.x, sum.y += term.y;
      }
    }
    for (int distance = team / 2; distance > 0; distance /= 2) {
      sum.x += __shfl_xor_sync(~0u, sum.x, distance);
      sum.y += __shfl_xor_sync(~0u, sum.y, distance);
    }
    if (group >= groups) continue;
    if (kCluster && plan.cluster > 1) {
      // Send the partial sum to every block, so that after one barrier each has all of them in its shared memory.
      for (int to = lane; to < plan.cluster; to += team) {
        ptx::st_shared_cluster(ptx::mapa(partial + tile.cta_rank * groups + group, to), sum);
      }
    } else if (lane == 0) {
      statistics[group] = finish(sum);
    }
  }
  if constexpr (kCluster) {
    if (plan.cluster > 1) {
      ptx::cluster_sync();
      for (int group = threadIdx.x; group < groups; group += plan.threads()) {
        float2 sum = partial[group];
        for (int cta_rank = 1; cta_rank < plan.cluster; ++cta_rank) {
          const float2 part = partial[cta_rank * groups + group];
          sum.x += part.x, sum.y += part.y;
        }
        statistics[group] = finish(sum);
      }
    }
  }
  __syncthreads();
  return statistics;
}

}  // namespace ladder::groupnorm

// Epilogue of pass `block`: the thread blocks of a cluster share the convolution of a group. Each has some of the
// group's channels, at all positions of some samples, and sends the others two numbers a sample.
#pragma once

#include <algorithm>

#include "core/occupancy.h"
#include "dev/common/lane_sums.h"
#include "dev/conv1d/block_output.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/st_shared_cluster.h"

namespace ladder::conv1d {

// Split of the output over a grid's blocks: ranks fastest, then groups, then samples.
struct GroupPlan {
  int ranks = 1;     // blocks of a cluster, which share a group's channels
  int channels = 1;  // of a block; the last one may have fewer
  int samples = 1;   // of a block

  unsigned blocks(const Problem& p) const { return static_cast<unsigned>(ranks * p.g * ceil_div(p.n, samples)); }
};

// Returns a split into blocks of at most `channels` channels, and of samples of at most `positions` positions in all.
// No ranks: a group has too many channels for the card's clusters, or a sample too many positions.
inline GroupPlan plan_group(const Problem& p, int channels, int positions) {
  const int ranks = ceil_div(p.group_channels(), channels);
  if (ranks > most_cluster_blocks() || p.out_l() > positions) return {.ranks = 0};
  return {.ranks = ranks, .channels = channels, .samples = std::min(p.n, positions / p.out_l())};
}

// Samples and channels of a block.
struct GroupRange {
  int rank, first_sample, samples, first_channel, channels;

  __device__ __forceinline__ GroupRange(const Problem& p, const GroupPlan& plan) {
    const int block = static_cast<int>(blockIdx.x);
    rank = block % plan.ranks;
    const int group = block / plan.ranks % p.g;
    first_sample = block / plan.ranks / p.g * plan.samples;
    samples = min(plan.samples, p.n - first_sample);
    first_channel = group * p.group_channels() + rank * plan.channels;
    channels = channels_of(p, plan, rank);
  }

  static __device__ __forceinline__ int channels_of(const Problem& p, const GroupPlan& plan, int rank) {
    return min(plan.channels, p.group_channels() - rank * plan.channels);
  }
};

// Tile of kPositions x kChannels sums. kParts sets of a block's threads have a part of each sum.
template <int kPositions, int kChannels, int kParts>
struct GroupTile {
  float part[kParts][kPositions * kChannels];  // [position][channel]
  float h[kPositions * kChannels];
  float2 moments[kPositions][kMaxBigClusterBlocks];  // of a sample and rank: mean, sum of squared distances from it
  float2 normaliser[kPositions];                     // of a sample: mean, 1 / deviation
};

// Adds up the parts of a tile, normalises the sums over the cluster and stores y. Called by all kThreads threads, after
// the barrier that follows the last store to tile.part. Each thread has called cluster_arrive_relaxed(), which is
// waited for here.
template <class T, int kThreads, int kPositions, int kChannels, int kParts>
__device__ __forceinline__ void finish_group(const Problem& p, const Block::Tensors& t, const GroupPlan& plan,
                                             const GroupRange& range, GroupTile<kPositions, kChannels, kParts>& tile) {
  constexpr int kElements = ceil_div(kPositions * kChannels, kThreads);  // of a thread
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int length = p.out_l();

  // Add up the convolution and its bias.
  for (int i = thread; i < kPositions * kChannels; i += kThreads) {
    float sum = i % kChannels < range.channels ? t.bias[range.first_channel + i % kChannels] : 0.0f;
#pragma unroll
    for (int part = 0; part < kParts; ++part) sum += tile.part[part][i];
    tile.h[i] = sum;
  }
  __syncthreads();

  // Compute mean and squared distances of this block's channels, a warp per sample, and send them to all ranks.
  ptx::cluster_wait();
  for (int sample = warp; sample < range.samples; sample += kThreads / 32) {
    const float* const h = tile.h + sample * length * kChannels;
    const int count = length * kChannels;
    float sum = 0;
    for (int i = lane; i < count; i += 32) sum += i % kChannels < range.channels ? h[i] : 0.0f;
    const float mean = sum_over_lanes(sum) / static_cast<float>(length * range.channels);
    float squares = 0;
    for (int i = lane; i < count; i += 32) {
      const float distance = i % kChannels < range.channels ? h[i] - mean : 0.0f;
      squares = fmaf(distance, distance, squares);
    }
    const float2 moments = {mean, sum_over_lanes(squares)};
    if (lane < plan.ranks) ptx::st_shared_cluster(ptx::mapa(&tile.moments[sample][range.rank], lane), moments);
  }
  ptx::cluster_arrive();

  // Load the constants and residuals of the thread's elements while the moments are in flight.
  const auto channel_of = [&](int i) { return range.first_channel + (i * kThreads + thread) % kChannels; };
  const auto sample_of = [&](int i) { return (i * kThreads + thread) / kChannels / length; };
  const auto is_inside = [&](int i) {
    return (i * kThreads + thread) % kChannels < range.channels && sample_of(i) < range.samples;
  };
  const auto offset_of = [&](int i) {
    return (range.first_sample * length + (i * kThreads + thread) / kChannels) * p.k + channel_of(i);
  };
  ChannelMap maps[kElements];
  float residual[kElements] = {};
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    if (!is_inside(i)) continue;
    maps[i] = ChannelMap::load(p, t, range.first_sample + sample_of(i), channel_of(i));
    if (t.residual) residual[i] = to_float(static_cast<const T*>(t.residual)[offset_of(i)]);
  }
  ptx::cluster_wait();

  // Merge the moments into the group's mean and deviation, a lane per rank.
  for (int sample = warp; sample < range.samples; sample += kThreads / 32) {
    const bool any = lane < plan.ranks;
    const float2 moments = any ? tile.moments[sample][lane] : float2{0, 0};
    const auto count = static_cast<float>(any ? length * GroupRange::channels_of(p, plan, lane) : 0);
    const auto group_elements = static_cast<float>(length * p.group_channels());
    const float mean = sum_over_lanes(count * moments.x) / group_elements;
    const float distance = moments.x - mean;
    const float squares = sum_over_lanes(fmaf(count * distance, distance, moments.y));
    if (lane == 0) tile.normaliser[sample] = {mean, 1.0f / sqrtf(squares / group_elements + kEpsilon)};
  }
  __syncthreads();

#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    if (!is_inside(i)) continue;
    const float2 normaliser = tile.normaliser[sample_of(i)];
    const float y = maps[i](p, (tile.h[i * kThreads + thread] - normaliser.x) * normaliser.y) + residual[i];
    static_cast<T*>(t.y)[offset_of(i)] = from_float<T>(y);
  }
}

}  // namespace ladder::conv1d

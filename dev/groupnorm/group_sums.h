// Blocks of a cluster that send each other sums of groups instead of channels, and what they leave of each channel for a
// kernel that adds up dgamma and dbeta while they are still at work: what v12 and later share.
#pragma once

#include "dev/groupnorm/dz_kept.h"
#include "dev/ptx/cache_policy.h"
#include "dev/ptx/clock.h"

namespace ladder::groupnorm::dz_kept {

// A float in the workspace, and beside it a ready flag that says that it is there. Whoever takes it takes the ready flag away, so that
// the next launch finds none: whatever else the workspace held, it was not these 32 bits in just this place.
using Flagged = unsigned long long;
constexpr unsigned kReady = 0x9e3779b9u;

__device__ __forceinline__ Flagged flagged(float value) {
  return static_cast<Flagged>(kReady) << 32 | __float_as_uint(value);
}
__device__ __forceinline__ bool is_ready(Flagged word) { return static_cast<unsigned>(word >> 32) == kReady; }
__device__ __forceinline__ float value_of(Flagged word) { return __uint_as_float(static_cast<unsigned>(word)); }

// Of a channel of an image: terms of dbeta and dgamma.
struct FlaggedRow {
  volatile Flagged dbeta, dgamma;
};

// Blocks send what they have of every group to all of the cluster, and of a channel to that one which adds it up: the block
// whose rank the channel is modulo the cluster's size.
struct GroupSums : Sums {
  using Row = FlaggedRow;

  static constexpr bool kFolds = true;
  static constexpr int kLogWarp = 5;
  static constexpr int kMaxGroups = 1 << kLogWarp;  // of a block: a lane for each
  static int most_cluster() { return most_cluster_blocks(); }

  float* mean;       // [groups]
  float* rstd;       // [groups]
  float2* groups;    // [groups][row]: of the ranks, rstd * gamma times dz and dz * (x - mean)
  float2* channels;  // [most_owned][cluster]: of the ranks, dz and dz * (x - mean), in the block's own channels
  ptx::CachePolicy policy;

  static __host__ __device__ int most_owned(const Plan& plan) {
    return plan.log_cluster > 0 ? (plan.chunk + plan.cluster() - 1) >> plan.log_cluster : 0;
  }
  // Two more than there are ranks, so that lanes which read several rows find them in different banks.
  static __host__ __device__ int row(const Plan& plan) { return plan.log_cluster == 0 ? 1 : plan.cluster() + 2; }
  static int bytes(const Plan& plan) {
    return plan.chunk * (4 + 8 * plan.parts) + 8 * (plan.groups * row(plan) + (most_owned(plan) << plan.log_cluster)) +
           8 * plan.groups + static_cast<int>(sizeof(ptx::Mbarrier));
  }
  __device__ __forceinline__ GroupSums(unsigned char* smem, const Plan& plan)
      : Sums(smem, plan), policy(ptx::evict_policy(plan.reads_once)) {
    groups = parts + plan.parts * plan.chunk;
    channels = groups + plan.groups * row(plan);
    arrived = reinterpret_cast<ptx::Mbarrier*>(channels + (most_owned(plan) << plan.log_cluster));
    mean = reinterpret_cast<float*>(arrived + 1);
    rstd = mean + plan.groups;
  }

  __device__ __forceinline__ void copy(void* to, const void* from, bool valid) const {
    ptx::cp_async_16(to, from, valid, policy);
  }

  // A chunk has at most 1024 channels, four for each thread, so the product is exact enough.
  static __device__ __forceinline__ int group_of(const Plan& plan, int channel) {
    return channel * plan.by_width >> 20;
  }

  // Calls f(i, group) for each of a thread's channels.
  template <class F>
  __device__ __forceinline__ void for_channels(const Plan& plan, const Place& place, const F& f) const {
    int group = group_of(plan, place.column * kQuad);
    int next = (group + 1) * plan.width - place.column * kQuad;
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      if (i == next) ++group, next += plan.width;
      f(i, group);
    }
  }

  struct Fetched {  // of a thread's first channel
    float mean, rstd, gamma;
  };
  static __device__ __forceinline__ Fetched fetch(const Problem& p, const Backward::Tensors& t, const Plan& plan,
                                                  const Place& place, int channel) {
    const int from = image_group(p, plan, place, group_of(plan, channel));
    return {.mean = t.mean[from], .rstd = t.rstd[from], .gamma = gamma_of(t, place.chunk * plan.chunk + channel)};
  }
  static __device__ __forceinline__ Fetched fetch_channels(const Problem& p, const Backward::Tensors& t,
                                                           const Plan& plan, const Place& place) {
    return fetch(p, t, plan, place, min(static_cast<int>(threadIdx.x), plan.chunk - 1));
  }
  __device__ __forceinline__ void load_channels(const Problem& p, const Backward::Tensors& t, const Plan& plan,
                                                const Place& place, Fetched fetched) const {
#pragma unroll 1
    for (int i = threadIdx.x; i < plan.chunk; i += plan.threads()) {
      const int group = group_of(plan, i);
      if (i >= plan.threads()) fetched = fetch(p, t, plan, place, i);
      if (i == group * plan.width) mean[group] = fetched.mean, rstd[group] = fetched.rstd;
      scale[i] = fetched.rstd * fetched.gamma;
    }
  }
  __device__ __forceinline__ void load_means(const Plan& plan, const Place& place, float (&values)[kQuad]) const {
    for_channels(plan, place, [&](int i, int group) { values[i] = mean[group]; });
  }

  __device__ __forceinline__ void leave(Row* rows, const Problem& p, const Plan& plan, const Place& place, int channel,
                                        float2 sum) const {
    Row& row = rows[place.image * p.c + place.chunk * plan.chunk + channel];
    row.dbeta = flagged(sum.x);
    row.dgamma = flagged(sum.y * rstd[group_of(plan, channel)]);
  }

  // How many of the chunk's channels are the block's own.
  static __device__ __forceinline__ int owned(const Plan& plan, const Place& place) {
    return (plan.chunk - place.rank + plan.cluster() - 1) >> plan.log_cluster;
  }

  // Each of so many lanes in a row, a power of two, gets the sum of what they have.
  static __device__ __forceinline__ float2 add_lanes(float2 sum, int lanes) {
#pragma unroll 1
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      sum.x += __shfl_xor_sync(~0u, sum.x, distance);
      sum.y += __shfl_xor_sync(~0u, sum.y, distance);
    }
    return sum;
  }

  // Adds up the block's parts of a group's channels, sends those of a channel to its own block and those of the group to all.
  // As few lanes as have work for each group, so that the first warps do it. Returns when what the cluster sends in the phase
  // of that parity is there, or what the block has, if it is alone.
  template <bool kCluster>
  __device__ __forceinline__ void exchange(const Problem& p, const Plan& plan, const Place& place, Row* rows,
                                           unsigned parity) const {
    if constexpr (kCluster) {
      ptx::cluster_wait();  // all blocks have started, or have read what they got before
      if (threadIdx.x == 0) {
        const int expected = plan.groups + (rows ? owned(plan, place) : 0);
        ptx::mbarrier_arrive_expect_tx(arrived, (expected << plan.log_cluster) * sizeof(float2));
      }
    }
    const int team = 1 << plan.log_channels;
    const int member = place.lane & (team - 1);
#pragma unroll 1
    for (int first = place.warp << (kLogWarp - plan.log_channels); first < plan.groups;
         first += plan.threads() >> plan.log_channels) {
      const int group = first + (place.lane >> plan.log_channels);
      float2 sum{0, 0};
      if (group < plan.groups) {
#pragma unroll 1
        for (int i = member; i < plan.width; i += team) {
          const int channel = group * plan.width + i;
          const float2 own = sum_column(parts, plan.parts, plan.chunk, channel);
          sum.x = fmaf(scale[channel], own.x, sum.x), sum.y = fmaf(scale[channel], own.y, sum.y);
          if (!rows) continue;
          if constexpr (kCluster) {
            const int to = channel & (plan.cluster() - 1);
            ptx::st_async(ptx::mapa(channels + (channel & -plan.cluster()) + place.rank, to), own,
                          ptx::mapa(arrived, to));
          } else {
            leave(rows, p, plan, place, channel, own);
          }
        }
      }
      sum = add_lanes(sum, team);
      if (group >= plan.groups) continue;
      float2* const at = groups + group * row(plan) + place.rank;
      if constexpr (kCluster) {
#pragma unroll 4
        for (int to = member; to < plan.cluster(); to += team) {
          ptx::st_async(ptx::mapa(at, to), sum, ptx::mapa(arrived, to));
        }
      } else if (member == 0) {
        *at = sum;
      }
    }
    if constexpr (kCluster) {
      ptx::mbarrier_wait_cluster(arrived, parity);
    } else {
      __syncthreads();
    }
  }

  // What the groups take off dx of the thread's channels: the lanes of each warp share out the rows of all groups.
  __device__ __forceinline__ void add_ranks(const Plan& plan, const Place& place, float (&offset)[kQuad],
                                            float (&slope)[kQuad]) const {
    const int team = 1 << plan.log_ranks;
    const int group = min(place.lane >> plan.log_ranks, plan.groups - 1);
    const float2* const ranks = groups + group * row(plan);
    float2 sum{0, 0};
#pragma unroll 4
    for (int rank = place.lane & (team - 1); rank < plan.cluster(); rank += team) {
      sum.x += ranks[rank].x, sum.y += ranks[rank].y;
    }
    sum = add_lanes(sum, team);
    const float of_offset = -plan.inverse_m * sum.x;
    const float of_slope = -plan.inverse_m * rstd[group] * rstd[group] * sum.y;
    const auto take = [&](int i, int from) {
      offset[i] = __shfl_sync(~0u, of_offset, from << plan.log_ranks);
      slope[i] = __shfl_sync(~0u, of_slope, from << plan.log_ranks);
    };
    if (plan.width % kQuad == 0) {
      take(0, group_of(plan, place.column * kQuad));
#pragma unroll
      for (int i = 1; i < kQuad; ++i) offset[i] = offset[0], slope[i] = slope[0];
    } else {
      for_channels(plan, place, take);
    }
  }

  // Leaves the sums of the block's own channels, by its last threads: the first ones had the most to do.
  __device__ __forceinline__ void leave_own(const Problem& p, const Plan& plan, const Place& place, Row* rows) const {
#pragma unroll 1
    for (int i = plan.threads() - 1 - static_cast<int>(threadIdx.x); i < owned(plan, place); i += plan.threads()) {
      const int first = i << plan.log_cluster;
      leave(rows, p, plan, place, first + place.rank, sum_column(channels + first, plan.cluster(), 1, 0));
    }
  }

  // See gradient(); in the phase of that parity.
  template <bool kCluster>
  __device__ __forceinline__ void correct(const Problem& p, const Plan& plan, const Place& place, Row* rows,
                                          float (&offset)[kQuad], float (&slope)[kQuad], unsigned parity = 0) const {
    exchange<kCluster>(p, plan, place, rows, parity);
    add_ranks(plan, place, offset, slope);
    if (kCluster && rows) leave_own(p, plan, place, rows);
  }
};

// A plan's time, roughly, to compare plans; infinity: it does not fit. Fitted to a sweep of all of v12's for the shapes of
// `perf` on an H200: waves of blocks take turns, or memory is what they wait for.
template <class T, class S>
double plan_ns(const Problem& p, const Plan& plan) {
  constexpr double kLine = 0.65;      // as traffic_ns() has it
  constexpr double kBlockNs = 1400;   // of a block, whatever it does
  constexpr double kClusterNs = 700;  // more for a cluster than for one of half its blocks
  constexpr double kStepNs = 180;     // of a thread, on an SM full of threads
  constexpr double kAlone = 0.7;      // of that, on an empty one
  constexpr double kFoldNs = 100;
  constexpr double kLast = 0.1;    // of a block, that nothing hides
  constexpr double kTooMany = 10;  // times as long: only where nothing else fits
  // Small blocks, as more of them fill an SM's memory evenly and take turns. Six warps where a row is no power of two.
  const int most_warps = (plan.quads & (plan.quads - 1)) == 0 ? 4 : 6;
  const Turns turns = turns_of<T, S>(p, plan);
  if (turns.most_blocks == 0) return std::numeric_limits<double>::infinity();

  const double filled = std::min<double>(turns.most_blocks, std::ceil(turns.blocks)) * plan.threads() / kThreadsPerSm;
  const double block = kBlockNs + plan.log_cluster * kClusterNs +
                       plan.steps * kStepNs * (kAlone + (1 - kAlone) * filled) +
                       (plan.parts < plan.senders ? kFoldNs : 0);
  const double ns = std::max(traffic_ns<T>(plan, turns.blocks, kLine), turns.waves * block) + kLast * block;
  return plan.warps > most_warps ? kTooMany * ns : ns;
}

// The plan of the lowest plan_ns().
template <class T, class S>
Plan plan_for(const Problem& p) {
  Plan plan = plan_of<T, S>(p, [&](const Plan& candidate) {
    return candidate.groups > S::kMaxGroups ? std::numeric_limits<double>::infinity() : plan_ns<T, S>(p, candidate);
  });
  const auto log_of = [](int count) { return static_cast<int>(std::bit_width(count - 1u)); };
  plan.log_channels = std::min(log_of(plan.width), S::kLogWarp);
  plan.log_ranks = S::kLogWarp - log_of(plan.groups);
  plan.reads_once = fits_l2(3.0 * p.elements() * sizeof(T));
  return plan;
}

// Adds up rows [rows][c] into dgamma and dbeta, block by block of a grid of parameter_blocks(c), as they come; and takes their
// ready flags away. The grid starts when every block of the kernel in front is at work on its last slab, so all rows will come.
__device__ __forceinline__ void add_flagged_rows(FlaggedRow* all, int rows, int c, float* dgamma, float* dbeta) {
  constexpr int kAtOnce = 4;
  constexpr unsigned kClocks = 200;  // that the L2 is left alone for
  const int channel = parameter_channel(blockIdx.x);
  float2 sum{0, 0};
  if (channel < c) {
#pragma unroll 1
    for (int first = parameter_group(); first < rows; first += kAtOnce * kParameterGroups) {
      FlaggedRow* const from = all + static_cast<long long>(first) * c + channel;
      const auto row = [&](int i) -> FlaggedRow& { return from[static_cast<long long>(i) * kParameterGroups * c]; };
      const int count = min(kAtOnce, ceil_div(rows - first, kParameterGroups));
      Flagged dbeta_words[kAtOnce];
      Flagged dgamma_words[kAtOnce];
      for (;;) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          dbeta_words[i] = i < count ? row(i).dbeta : flagged(0);
          dgamma_words[i] = i < count ? row(i).dgamma : flagged(0);
        }
        bool there = true;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) there = there && is_ready(dbeta_words[i]) && is_ready(dgamma_words[i]);
        if (there) break;
        ptx::wait_clocks(kClocks);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        sum.x += value_of(dbeta_words[i]), sum.y += value_of(dgamma_words[i]);
        if (i >= count) continue;
        row(i).dbeta = 0;
        row(i).dgamma = 0;
      }
    }
  }
  store_parameters(sum, c, blockIdx.x, dgamma, dbeta);
  ptx::grid_dependency_wait();  // whatever comes behind this grid needs dx
}

}  // namespace ladder::groupnorm::dz_kept

// The convolution of a batch as a matrix product by wgmma: 128 positions of several samples times kChannels output channels,
// the input channels split over the blocks of a cluster.
//
// Positions are ordered (position, sample). Rows of x lie in shared memory in the same order, so that a term of the sums, such
// as a tap, multiplies 128 consecutive rows, and x is loaded once for all terms. Shared memory, in stages of a chunk of 64
// input channels; rows are 128 bytes, swizzled:
//
//     x [rows][samples]           TermRows says which positions
//     w [terms][kChannels]
//
// After the last chunk the sums lie there, [128][kSumsPitch] fp32.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/early_tensors.h"
#include "core/occupancy.h"
#include "dev/common/cluster_sums.h"
#include "dev/common/wgmma_step.h"
#include "dev/conv1d/conv1d.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/mbarrier.h"
#include "dev/ptx/tma.h"
#include "dev/ptx/wgmma.h"

namespace ladder::conv1d {

inline constexpr int kBlockPositions = 128;
inline constexpr int kConsumerThreads = 256;
inline constexpr int kSamplesThreads = kConsumerThreads + 32;  // and the producer's warp
inline constexpr int kMostStages = 8;
inline constexpr int kMostTerms = 7;
inline constexpr int kMostLength = 32;

// Rows of x that a block loads, and those that a term multiplies. Positions are counted within a phase: the even or the odd
// ones of a transposed convolution, else all.
struct TermRows {
  int length;  // positions of a sample in a phase
  int rows;    // of each sample

  __host__ __device__ explicit TermRows(const Problem& p)
      : length(p.transposed ? p.l : p.out_l()),
        rows(p.transposed ? length + 1
             : p.stride2  ? 2 * length + 1
                          : length + p.taps - 1) {}

  // Position of x in `row`, which may lie outside. Of stride 2 the odd positions come first.
  __device__ __forceinline__ int position(const Problem& p, int phase, int row) const {
    if (p.transposed) return row - 1 + phase;
    if (p.stride2) return row <= length ? 2 * row - 1 : 2 * (row - length - 1);
    return row - p.taps / 2;
  }
  __device__ __forceinline__ int first_row(const Problem& p, int term) const {
    if (p.transposed) return 1 - term;
    if (p.stride2) return term == 1 ? length + 1 : term / 2;
    return term;
  }
};

// Split of the work. The `ranks` blocks of a cluster have the same positions and channels, and some chunks each.
struct SamplesPlan {
  int samples;  // of a block
  int ranks;
  int chunks;  // of 64 input channels, of a rank; the last may have fewer
  int stages;  // 0: a stage does not fit shared memory
  int x_bytes;
  int stage_bytes;

  SamplesPlan(const Problem& p, int channels, int num_ranks)
      : samples(kBlockPositions / TermRows(p).length),
        ranks(num_ranks),
        chunks(ceil_div(p.c / kStepTerms16, num_ranks)) {
    constexpr int kPattern = 8 * kStepRowBytes;  // of the swizzle
    constexpr int kStaticBytes = 2 << 10;
    x_bytes = ceil_div(TermRows(p).rows * samples * kStepRowBytes, kPattern) * kPattern;
    stage_bytes = x_bytes + p.terms() * channels * kStepRowBytes;
    stages = std::min({kMostStages, chunks, (most_smem_bytes() - kStaticBytes) / stage_bytes});
  }

  // tiles: blocks of a rank.
  template <int kChannels>
  LaunchConfig launch_config(int tiles) const {
    const std::size_t ring_bytes = std::size_t{1} * stages * stage_bytes;
    return {.grid = static_cast<unsigned>(tiles * ranks),
            .block = kSamplesThreads,
            .dynamic_smem = std::max(ring_bytes, sizeof(float) * kBlockPositions * kSumsPitch<kChannels>),
            .cluster = static_cast<unsigned>(ranks),
            .overlaps_previous = true};
  }
};

// Reasons against any plan of `channels` output channels a block, or null.
inline const char* samples_problem(const Problem& p, int channels) {
  if (p.c % kStepTerms16 != 0) return "c is no multiple of 64";
  const int length = TermRows(p).length;
  if (length > kMostLength || kBlockPositions % length != 0) return "positions are not 1, 2, 4, 8, 16 or 32";
  return SamplesPlan(p, channels, 1).stages > 0 ? nullptr : "a chunk of x and w does not fit shared memory";
}

struct Ranks {
  int count;
  const char* plan;
};
inline constexpr Ranks kRanks[] = {{1, "ranks1"}, {2, "ranks2"}, {3, "ranks3"},
                                   {4, "ranks4"}, {6, "ranks6"}, {8, "ranks8"}};

// Returns plan_of(name, plan) for each number of ranks that leaves none without chunks. The default takes the least time by a
// rough estimate, in which a stage's bytes come at an SM's share of the L2's rate. tiles: blocks of a rank.
template <class Pass, class PlanOf>
std::vector<KernelPlan<Pass>> ranks_plans(const Problem& p, int channels, int tiles, const PlanOf& plan_of) {
  constexpr double kBytesPerNs = 40, kStartNs = 4000;
  std::vector<KernelPlan<Pass>> all;
  std::size_t chosen = 0;
  double least_ns = 0;
  for (const Ranks& ranks : kRanks) {
    const SamplesPlan plan(p, channels, ranks.count);
    if ((ranks.count - 1) * plan.chunks >= p.c / kStepTerms16) continue;
    const double waves = turns_of(tiles, ranks.count, kSamplesThreads, most_smem_bytes(), 1024).waves;
    const double ns = std::ceil(waves) * (kStartNs + plan.chunks * plan.stage_bytes / kBytesPerNs);
    if (all.empty() || ns < least_ns) {
      least_ns = ns;
      chosen = all.size();
    }
    all.push_back(plan_of(ranks.plan, plan));
  }
  return with_default(std::move(all), chosen);
}

struct SamplesMaps {
  ptx::TensorMap x, x_rest, w;
  int split;  // channels of x; the others are x_rest's

  // x_rest_base null: x has all channels.
  SamplesMaps(const Problem& p, const void* x_base, const void* x_rest_base, const void* w_base, int samples,
              int channels)
      : split(x_rest_base ? p.split : p.c) {
    const auto map = [&](const void* base, int a, int b, int c, int box_c) {
      const auto size = [](int value) { return static_cast<std::uint64_t>(value); };
      return ptx::make_tensor_map(p.dtype, base, {size(a), size(b), size(c)},
                                  {kStepTerms16, 1, static_cast<unsigned>(box_c)});
    };
    x = map(x_base, split, p.l, p.n, samples);
    x_rest = x_rest_base ? map(x_rest_base, p.c - split, p.l, p.n, samples) : x;
    w = map(w_base, p.c, p.taps, p.k, channels);
  }
};

// A block's place in the grid: ranks fastest, then channels, phases, samples.
template <int kChannels>
struct SamplesTile {
  int rank, first_channel, phase, first_sample;

  __device__ __forceinline__ SamplesTile(const Problem& p, const SamplesPlan& plan) {
    const int phases = p.transposed ? 2 : 1;
    const int tile = static_cast<int>(blockIdx.x) / plan.ranks;
    rank = static_cast<int>(blockIdx.x) % plan.ranks;
    first_channel = tile % (p.k / kChannels) * kChannels;
    phase = tile / (p.k / kChannels) % phases;
    first_sample = tile / (p.k / kChannels) / phases * plan.samples;
  }
  static int count(const Problem& p, const SamplesPlan& plan) {
    return p.k / kChannels * (p.transposed ? 2 : 1) * ceil_div(p.n, plan.samples);
  }
};

// Multiplies a rank's chunks and leaves the sums at the start of `smem`: row position * samples + sample, a row of
// kSumsPitch<kChannels> floats. Called by all kSamplesThreads threads, which have arrived at the cluster's barrier when it
// returns: after cluster_wait() the sums of all ranks are there. Weights are loaded before the grid in front has ended if
// early_weights.
template <class T, int kChannels>
__device__ __forceinline__ void multiply_samples(unsigned char* smem, const Problem& p, const SamplesPlan& plan,
                                                 const SamplesTile<kChannels>& tile, const SamplesMaps& maps,
                                                 bool early_weights) {
  constexpr int kTermBytes = kChannels * kStepRowBytes;
  LADDER_SHARED(ptx::Mbarrier, full, [kMostStages][kMostTerms]);
  LADDER_SHARED(ptx::Mbarrier, empty, [kMostStages]);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const TermRows x_rows(p);
  const int first_chunk = tile.rank * plan.chunks;
  const int chunks = min(plan.chunks, p.c / kStepTerms16 - first_chunk);
  const int terms = p.terms();

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < plan.stages; ++stage) {
      for (int term = 0; term < terms; ++term) ptx::mbarrier_init(&full[stage][term], 1);
      ptx::mbarrier_init(&empty[stage], kConsumerThreads / 32);
    }
    ptx::mbarrier_fence_init();
  }
  if (threadIdx.x == kConsumerThreads) {
    ptx::tma_prefetch(maps.x);
    ptx::tma_prefetch(maps.x_rest);
    ptx::tma_prefetch(maps.w);
  }
  __syncthreads();

  float sums[kChannels / 2];
  if (warp == kConsumerThreads / 32) {
    // The producer. The first term's barrier counts x too.
    const auto load_w = [&](int i) {
      unsigned char* const w = smem + i % plan.stages * plan.stage_bytes + plan.x_bytes;
      ptx::Mbarrier* const of_terms = full[i % plan.stages];
      for (int term = 0; term < terms; ++term) {
        const int x_bytes = term == 0 ? x_rows.rows * plan.samples * kStepRowBytes : 0;
        ptx::mbarrier_arrive_expect_tx(of_terms + term, x_bytes + kTermBytes);
        ptx::tma_load(w + term * kTermBytes, maps.w, of_terms + term, (first_chunk + i) * kStepTerms16,
                      p.tap(tile.phase, term), tile.first_channel);
      }
    };
    const int early_chunks = early_weights ? min(chunks, plan.stages) : 0;
    if (lane == 0) {
      for (int i = 0; i < early_chunks; ++i) load_w(i);
    }
    ptx::grid_dependency_wait();
    for (int i = 0; i < chunks; ++i) {
      const int stage = i % plan.stages;
      if (i >= plan.stages) ptx::mbarrier_wait(&empty[stage], (i / plan.stages - 1) % 2);
      if (lane == 0 && i >= early_chunks) load_w(i);
      __syncwarp();
      const int c = (first_chunk + i) * kStepTerms16;
      const bool from_second = c >= maps.split;
      for (int row = lane; row < x_rows.rows; row += 32) {
        ptx::tma_load(smem + stage * plan.stage_bytes + row * plan.samples * kStepRowBytes,
                      from_second ? maps.x_rest : maps.x, &full[stage][0], from_second ? c - maps.split : c,
                      x_rows.position(p, tile.phase, row), tile.first_sample);
      }
    }
    ptx::grid_dependency_launch();
  } else {
    ptx::grid_dependency_wait();
    const int group_row = warp / 4 * 64;
    for (int i = 0; i < chunks; ++i) {
      const int stage = i % plan.stages;
      const unsigned char* const x = smem + stage * plan.stage_bytes + group_row * kStepRowBytes;
      const unsigned char* const w = smem + stage * plan.stage_bytes + plan.x_bytes;
      for (int term = 0; term < terms; ++term) {
        ptx::mbarrier_wait(&full[stage][term], i / plan.stages % 2);
        ptx::wgmma_fence();
#pragma unroll
        for (int kk = 0; kk < kStepTerms16 / kWgmmaTerms; ++kk) {
          const auto a = ptx::wgmma_descriptor(
              x + x_rows.first_row(p, term) * plan.samples * kStepRowBytes + kk * kWgmmaTerms * 2, 8 * kStepRowBytes);
          const auto b = ptx::wgmma_descriptor(w + term * kTermBytes + kk * kWgmmaTerms * 2, 8 * kStepRowBytes);
          ptx::wgmma_m64<T, kChannels>(sums, a, b, i > 0 || term > 0 || kk > 0);
        }
        ptx::wgmma_commit();
        // The multiplications before these have ended, and with them the chunk before this one.
        ptx::wgmma_wait<1>();
        if (lane == 0 && term == 0 && i > 0 && plan.stages > 1) ptx::mbarrier_arrive(&empty[(i - 1) % plan.stages]);
      }
      if (plan.stages > 1) continue;
      ptx::wgmma_wait<0>();
      if (lane == 0) ptx::mbarrier_arrive(&empty[0]);
    }
    ptx::wgmma_wait<0>();
    ptx::warpgroup_fence_operand(sums);
  }
  __syncthreads();
  if (warp < kConsumerThreads / 32) {
    put_wgmma_sums<kChannels>(reinterpret_cast<float*>(smem), sums, warp * 16, true);
  }
  ptx::cluster_arrive();
}

}  // namespace ladder::conv1d

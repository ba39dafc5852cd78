// A convolution of small images, forward or of the data gradient, whose channels are split over a cluster: four blocks have
// the same four patches of 8 x 8 pixels and the same 64 output channels, and every fourth chunk of the channels that are
// summed over each. A block sends its sums of the other blocks' patches to their shared memory, and finishes its own patch.
// Output channels are the rows of wgmma's tiles, pixels the columns.
//
// `Weights` is how a version reads w: channels_in(p) are summed over, channels_out(p) made; load() fetches a tap of 64 x 64 of
// them; operand() and multiply() are wgmma's with that layout.
#pragma once

#include "dev/common/ring.h"
#include "dev/conv3x3/column_store.h"
#include "dev/conv3x3/halo_patch.h"
#include "dev/ptx/cluster.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/st_async.h"

namespace ladder::conv3x3 {

inline constexpr int kChunk = 64;  // channels that are summed over at a time
inline constexpr int kMmaK = 16;
inline constexpr int kTapBytes = kChunk * kTileChannels * 2;

inline constexpr int kRanks = 4;  // blocks of a cluster, and its patches
inline constexpr int kConsumerGroups = 2;
inline constexpr int kGroupPatches = kRanks / kConsumerGroups;
inline constexpr int kConsumerThreads = kConsumerGroups * kGroupThreads;
inline constexpr int kThreads = kConsumerThreads + 32;  // one producer warp

inline constexpr int kPatchStages = 2;
inline constexpr int kTapStages = 7;
inline constexpr int kQuads = kPatchPixels / 8;  // four sums each that a thread has of a patch

struct SplitSmem {
  static constexpr int kStageBytes = kRanks * kPatchBytes;
  static constexpr int kSumsBytes = kQuads * kGroupThreads * static_cast<int>(sizeof(float4));
  static constexpr int kReceivedBytes = (kRanks - 1) * kSumsBytes;
  static constexpr int kRowsBytes = ColumnStore<__half, kPatchPixels>::kBytes;
  static constexpr int kBarriers = 2 * kPatchStages + 2 * kTapStages + 2;
  static constexpr std::size_t kBytes = kPatchStages * kStageBytes + kTapStages * kTapBytes + kReceivedBytes +
                                        kRowsBytes + kBarriers * sizeof(ptx::Mbarrier);
  static_assert(kBytes <= 227 * 1024, "what a block of sm_90 can have");

  unsigned char* patches;  // [stage][patch][10 x 10 pixels][64 channels]
  unsigned char* taps;     // [stage], as Weights::load() leaves them
  float4* received;        // [sender][quad][thread of the group]
  unsigned char* rows;
  ptx::Mbarrier *full_patches, *empty_patches, *full_taps, *empty_taps, *arrived, *met;

  __device__ __forceinline__ explicit SplitSmem(unsigned char* smem)
      : patches(smem),
        taps(patches + kPatchStages * kStageBytes),
        received(reinterpret_cast<float4*>(taps + kTapStages * kTapBytes)),
        rows(reinterpret_cast<unsigned char*>(received) + kReceivedBytes),
        full_patches(reinterpret_cast<ptx::Mbarrier*>(rows + kRowsBytes)),
        empty_patches(full_patches + kPatchStages),
        full_taps(empty_patches + kPatchStages),
        empty_taps(full_taps + kTapStages),
        arrived(empty_taps + kTapStages),
        met(arrived + 1) {}

  // By one thread. Sums come from `senders` blocks.
  __device__ __forceinline__ void init_barriers(int senders) const {
    for (int i = 0; i < kPatchStages; ++i) {
      ptx::mbarrier_init(full_patches + i, 1);
      ptx::mbarrier_init(empty_patches + i, kConsumerThreads / 32);
    }
    for (int i = 0; i < kTapStages; ++i) {
      ptx::mbarrier_init(full_taps + i, 1);
      ptx::mbarrier_init(empty_taps + i, kConsumerThreads / 32);
    }
    ptx::mbarrier_init(arrived, 1);
    ptx::mbarrier_init(met, kGroupThreads / 32);
    ptx::mbarrier_fence_init();
    ptx::mbarrier_arrive_expect_tx(arrived, senders * kSumsBytes);
  }
};

// What a block does: its own patch is number `rank` of the cluster's.
struct Part {
  int rank, channel0, first_patch, chunks;

  template <class Weights>
  static __device__ __forceinline__ Part of_block(const Problem& p) {
    const int cluster = static_cast<int>(blockIdx.x) / kRanks;
    const int channel_tiles = ceil_div(Weights::channels_out(p), kTileChannels);
    return {.rank = static_cast<int>(blockIdx.x) % kRanks,
            .channel0 = cluster % channel_tiles * kTileChannels,
            .first_patch = cluster / channel_tiles * kRanks,
            .chunks = ceil_div(Weights::channels_in(p), kChunk)};
  }
  // Of the blocks other than this one, those that have a chunk.
  __device__ __forceinline__ int senders() const { return min(chunks, kRanks) - (rank < chunks ? 1 : 0); }
};

// The producer, one thread.
template <class Weights>
__device__ __forceinline__ void load_chunks(const Problem& p, const SplitSmem& smem, const Part& part,
                                            const ptx::TensorMap& image_map, const ptx::TensorMap& w_map) {
  ptx::tma_prefetch(image_map);
  ptx::tma_prefetch(w_map);
  RingIndex<kPatchStages> a;
  RingIndex<kTapStages> b;
  for (int chunk = part.rank; chunk < part.chunks; chunk += kRanks, a.advance()) {
    // A fresh barrier lets a wait for the parity before its first phase pass: parity ^ 1.
    ptx::mbarrier_wait(smem.empty_patches + a.stage, a.parity ^ 1);
    ptx::mbarrier_arrive_expect_tx(smem.full_patches + a.stage, kRanks * kHaloBytes);
    for (int i = 0; i < kRanks; ++i) {
      load_patch(smem.patches + a.stage * SplitSmem::kStageBytes + i * kPatchBytes, image_map,
                 smem.full_patches + a.stage, patch_position(p, part.first_patch + i), chunk * kChunk);
    }
    for (int tap = 0; tap < 9; ++tap, b.advance()) {
      ptx::mbarrier_wait(smem.empty_taps + b.stage, b.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(smem.full_taps + b.stage, kTapBytes);
      Weights::load(smem.taps + b.stage * kTapBytes, w_map, smem.full_taps + b.stage, chunk, tap, part.channel0);
    }
  }
  ptx::grid_dependency_launch();
}

// A warpgroup's sums of its patches over the block's chunks; zeros where there are none.
template <class T, class Weights>
__device__ __forceinline__ void multiply_chunks(const SplitSmem& smem, const Part& part, int group,
                                                float (&sum)[kGroupPatches][kPatchPixels / 2]) {
  const bool elected = threadIdx.x % 32 == 0;
  RingIndex<kPatchStages> a;
  RingIndex<kTapStages> b;
  // The stages that the multiplications still in flight read: released one tap late.
  int busy_patches = -1;
  int busy_tap = -1;
  for (int chunk = part.rank; chunk < part.chunks; chunk += kRanks) {
    ptx::mbarrier_wait(smem.full_patches + a.stage, a.parity);
    const unsigned char* const halo =
        smem.patches + a.stage * SplitSmem::kStageBytes + group * kGroupPatches * kPatchBytes;
#pragma unroll
    for (int tap = 0; tap < 9; ++tap) {
      ptx::mbarrier_wait(smem.full_taps + b.stage, b.parity);
      const unsigned char* const weights = smem.taps + b.stage * kTapBytes;
      ptx::wgmma_fence();
#pragma unroll
      for (int step = 0; step < kChunk / kMmaK; ++step) {
#pragma unroll
        for (int i = 0; i < kGroupPatches; ++i) {
          Weights::template multiply<T, kPatchPixels>(sum[i], Weights::operand(weights, step),
                                                      pixel_operand(halo + i * kPatchBytes, tap, step),
                                                      chunk > part.rank || tap > 0 || step > 0);
        }
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      if (elected && busy_tap >= 0) ptx::mbarrier_arrive(smem.empty_taps + busy_tap);
      if (elected && busy_patches >= 0) ptx::mbarrier_arrive(smem.empty_patches + busy_patches);
      busy_patches = -1;
      busy_tap = b.stage;
      b.advance();
    }
    busy_patches = a.stage;
    a.advance();
  }
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < kGroupPatches; ++i) ptx::warpgroup_fence_operand(sum[i]);
  if (part.rank < part.chunks) return;
#pragma unroll
  for (int i = 0; i < kGroupPatches; ++i) {
#pragma unroll
    for (int j = 0; j < kPatchPixels / 2; ++j) sum[i][j] = 0.0f;
  }
}

// Sends a warpgroup's sums to the blocks whose patches they are of. All blocks of the cluster have started.
__device__ __forceinline__ void send_sums(const SplitSmem& smem, const Part& part, int group,
                                          const float (&sum)[kGroupPatches][kPatchPixels / 2]) {
  if (part.rank >= part.chunks) return;
  const int thread = threadIdx.x % kGroupThreads;
#pragma unroll
  for (int i = 0; i < kGroupPatches; ++i) {
    const int owner = group * kGroupPatches + i;
    if (owner == part.rank) continue;
    const int sender = part.rank - (part.rank > owner ? 1 : 0);
    const auto to = ptx::mapa(smem.received + sender * kQuads * kGroupThreads + thread, owner);
    const auto arrived = ptx::mapa(smem.arrived, owner);
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
      const float* const from = sum[i] + 4 * quad;
      ptx::st_async(to + quad * kGroupThreads, float4{from[0], from[1], from[2], from[3]}, arrived);
    }
  }
}

// The block's own patch, by the warpgroup that has it: its sums and those that the other blocks have sent.
__device__ __forceinline__ void receive_sums(const SplitSmem& smem, const Part& part,
                                             const float (&sum)[kGroupPatches][kPatchPixels / 2],
                                             float (&whole)[kPatchPixels / 2]) {
  const int own = part.rank % kGroupPatches;
#pragma unroll
  for (int j = 0; j < kPatchPixels / 2; ++j) whole[j] = own == 0 ? sum[0][j] : sum[1][j];
  static_assert(kGroupPatches == 2);
  ptx::mbarrier_wait_cluster(smem.arrived, 0);
  for (int sender = 0; sender < part.senders(); ++sender) {
    const float4* const from = smem.received + sender * kQuads * kGroupThreads + threadIdx.x % kGroupThreads;
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
      const float4 more = from[quad * kGroupThreads];
      float* const to = whole + 4 * quad;
      to[0] += more.x, to[1] += more.y, to[2] += more.z, to[3] += more.w;
    }
  }
}

inline LaunchConfig split_config(const Problem& p, int channels_out) {
  const int clusters = ceil_div(num_patches(p), kRanks) * ceil_div(channels_out, kTileChannels);
  return {.grid = static_cast<unsigned>(clusters * kRanks),
          .block = kThreads,
          .dynamic_smem = SplitSmem::kBytes,
          .cluster = kRanks,
          .overlaps_previous = true};
}

}  // namespace ladder::conv3x3

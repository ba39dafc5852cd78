// A weight-stationary convolution, forward or of the data gradient. A block keeps all nine taps of its 64 output channels in
// shared memory, a ring of stages holds halo patches, and two consumer warpgroups take tiles of patches in turns: one stores
// while the other multiplies.
//
// `Weights` is how a version reads w: channels_in(p) are summed over, channels_out(p) made; load() fetches a tap of 64 x 64 of
// them; operand() and multiply() are wgmma's with that layout.
#pragma once

#include <algorithm>

#include "core/backend.h"
#include "dev/common/ping_pong_order.h"
#include "dev/common/ring.h"
#include "dev/conv3x3/patch_store.h"
#include "dev/conv3x3/taps.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv3x3 {

inline constexpr int kConsumerGroups = PingPongOrder::kGroups;
inline constexpr int kGroupThreads = 128;
inline constexpr int kConsumerThreads = kConsumerGroups * kGroupThreads;
inline constexpr int kThreads = kConsumerThreads + 32;  // one producer warp

// A tile is kPatches patches; weights are those of at most kMaxChunks chunks.
template <int kPatches_, int kMaxChunks_>
struct ResidentTile {
  static constexpr int kPatches = kPatches_, kMaxChunks = kMaxChunks_;
  static constexpr int kWeightBytes = kMaxChunks * 9 * kTapBytes;
  static constexpr int kStageBytes = kPatches * kPatchBytes;
  static constexpr int kStoreBytes = kConsumerThreads / 32 * PatchStore<__half>::kBytes;
  static constexpr int kStages = std::min(6, (227 * 1024 - kWeightBytes - kStoreBytes) / kStageBytes);
  static constexpr std::size_t kSmemBytes = std::size_t{kStages} * kStageBytes + kWeightBytes + kStoreBytes;
  static_assert(kStages >= 2 * kMaxChunks, "the next tile's patches are fetched while this one is multiplied");

  // Barriers lie in the padding after the last stage's last patch: a fifth stage of 128 channels leaves no other room.
  static constexpr int kBarriersOffset = kStages * kStageBytes - (kPatchBytes - kHaloBytes);
  static_assert((2 * kStages + kMaxChunks * 9 + PingPongOrder::kGroups) * sizeof(ptx::Mbarrier) <=
                kPatchBytes - kHaloBytes);
};
using TwoPatches = ResidentTile<2, 1>;
using OnePatch = ResidentTile<1, 2>;
inline constexpr int kMaxChannels = OnePatch::kMaxChunks * kChunk;  // that are summed over

template <class Tile>
struct ResidentSmem {
  unsigned char* weights;  // [chunk][tap], as Weights::load() leaves them
  unsigned char* stages;   // [stage][patch][10 x 10 pixels][64 channels]
  unsigned char* stores;   // [warp]
  ptx::Mbarrier* full;     // [stage]
  ptx::Mbarrier* empty;
  ptx::Mbarrier* full_weights;  // [chunk][tap]
  PingPongOrder turns;

  __device__ __forceinline__ explicit ResidentSmem(unsigned char* smem)
      : weights(smem),
        stages(weights + Tile::kWeightBytes),
        stores(stages + Tile::kStages * Tile::kStageBytes),
        full(reinterpret_cast<ptx::Mbarrier*>(stages + Tile::kBarriersOffset)),
        empty(full + Tile::kStages),
        full_weights(empty + Tile::kStages),
        turns{full_weights + Tile::kMaxChunks * 9} {}

  __device__ __forceinline__ void init_barriers(int chunks) const {
    for (int i = 0; i < Tile::kStages; ++i) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, kGroupThreads / 32);
    }
    for (int i = 0; i < chunks * 9; ++i) ptx::mbarrier_init(full_weights + i, 1);
    turns.init();
    ptx::mbarrier_fence_init();
  }
};

// Work of a block: one tile of channels, and every `tile_step`-th tile of patches.
struct TileRange {
  int channel0, first_tile, tile_step, tiles;
};

// Producer, one thread: waits for the grid in front, then loads patches of every tile, with the first tile's the weights.
template <class Weights, class Tile>
__device__ __forceinline__ void load_resident(const Problem& p, const ResidentSmem<Tile>& smem,
                                              const TileRange& work_range, int chunks, const ptx::TensorMap& image_map,
                                              const ptx::TensorMap& w_map) {
  ptx::grid_dependency_wait();
  int i = 0;
  for (int tile = work_range.first_tile; tile < work_range.tiles; tile += work_range.tile_step) {
    for (int chunk = 0; chunk < chunks; ++chunk, ++i) {
      const int stage = stage_of<Tile::kStages>(i);
      // A fresh barrier lets a wait for the parity before its first phase pass: parity ^ 1.
      ptx::mbarrier_wait(smem.empty + stage, parity_of<Tile::kStages>(i) ^ 1);
      ptx::mbarrier_arrive_expect_tx(smem.full + stage, Tile::kPatches * kHaloBytes);
      for (int patch = 0; patch < Tile::kPatches; ++patch) {
        load_patch(smem.stages + stage * Tile::kStageBytes + patch * kPatchBytes, image_map, smem.full + stage,
                   patch_position(p, tile * Tile::kPatches + patch), chunk * kChunk);
      }
      if (tile == work_range.first_tile)
        load_taps_once<Weights>(smem.weights, w_map, smem.full_weights, chunk, work_range.channel0);
    }
  }
  ptx::grid_dependency_launch();
}

// A warpgroup's sums of the tile whose turn it is: all taps of all chunks. The turn passes on with
// the last of them issued.
template <class T, class Weights, class Tile>
__device__ __forceinline__ void multiply_resident(const ResidentSmem<Tile>& smem, int chunks, int turn, bool elected,
                                                  float (&sum)[Tile::kPatches][kTileChannels / 2]) {
  smem.turns.wait(turn);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int i = turn * chunks + chunk;
    const int stage = stage_of<Tile::kStages>(i);
    const unsigned char* const halo = smem.stages + stage * Tile::kStageBytes;
    ptx::mbarrier_wait(smem.full + stage, parity_of<Tile::kStages>(i));
#pragma unroll
    for (int tap = 0; tap < 9; ++tap) {
      ptx::mbarrier_wait(smem.full_weights + chunk * 9 + tap, 0);
      ptx::wgmma_fence();
      const unsigned char* const weights = smem.weights + (chunk * 9 + tap) * kTapBytes;
#pragma unroll
      for (int step = 0; step < kChunk / kMmaK; ++step) {
        const auto b = Weights::operand(weights, step);
#pragma unroll
        for (int patch = 0; patch < Tile::kPatches; ++patch) {
          const auto a = pixel_operand(halo + patch * kPatchBytes, tap, step);
          Weights::template multiply<T>(sum[patch], a, b, chunk > 0 || tap > 0 || step > 0);
        }
      }
      ptx::wgmma_commit();
      if (elected && chunk == chunks - 1 && tap == 8) smem.turns.pass_on(turn);
      ptx::wgmma_wait<1>();
      // The stage that the chunk before has read is free.
      if (elected && chunk > 0 && tap == 0) ptx::mbarrier_arrive(smem.empty + stage_of<Tile::kStages>(i - 1));
    }
  }
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int patch = 0; patch < Tile::kPatches; ++patch) ptx::warpgroup_fence_operand(sum[patch]);
  if (elected) ptx::mbarrier_arrive(smem.empty + stage_of<Tile::kStages>(turn * chunks + chunks - 1));
}

// Stores a warp's sums of a tile to `out` [n, h, w, channels_out]; bias [channels_out] or null.
template <class Weights, class Tile, class T, class P>
__device__ __forceinline__ void store_resident(const Problem& p, unsigned char* staging, int tile, int channel0,
                                               const float (&sum)[Tile::kPatches][kTileChannels / 2], const P* bias,
                                               T* out) {
#pragma unroll
  for (int patch = 0; patch < Tile::kPatches; ++patch) {
    const PatchPosition position = patch_position(p, tile * Tile::kPatches + patch);
    PatchStore<T>::store(staging, p, sum[patch], position, channel0, Weights::channels_out(p), bias, out);
  }
}

// Blocks of a launch: as many for each tile of channels as there are SMs, or tiles of patches.
template <class Tile>
int num_blocks(const Problem& p, int channels_out) {
  const int channel_tiles = ceil_div(channels_out, kTileChannels);
  const int patch_tiles = ceil_div(num_patches(p), Tile::kPatches);
  return channel_tiles * std::max(1, std::min(backend::device().num_sms / channel_tiles, patch_tiles));
}

// Patches that the busiest block multiplies.
template <class Tile>
int max_patches(const Problem& p, int channels_out) {
  const int blocks = num_blocks<Tile>(p, channels_out) / ceil_div(channels_out, kTileChannels);
  return ceil_div(ceil_div(num_patches(p), Tile::kPatches), blocks) * Tile::kPatches;
}

// `plan_of(Tile{}, name)` of each tile that holds the weights; two patches a tile where the busiest block has no more then.
template <class Pass, class Weights, class F>
std::vector<KernelPlan<Pass>> resident_plans(const Problem& p, F&& plan_of) {
  std::vector<KernelPlan<Pass>> plans = {plan_of(OnePatch{}, "1 patch")};
  if (Weights::channels_in(p) > kChunk) return plans;
  plans.push_back(plan_of(TwoPatches{}, "2 patches"));
  const int channels = Weights::channels_out(p);
  const bool two = max_patches<TwoPatches>(p, channels) <= max_patches<OnePatch>(p, channels);
  return with_default<Pass>(std::move(plans), two ? 1 : 0);
}

}  // namespace ladder::conv3x3

// What a block has that keeps its weights: those of one tile of 64 output channels, all nine taps, in shared memory for as
// long as it lives, a ring of stages of halo patches beside them, and two consumer warpgroups that take tiles of patches by
// turns, so that one stores while the other multiplies.
#pragma once

#include <algorithm>

#include "core/backend.h"
#include "dev/common/ping_pong_order.h"
#include "dev/common/ring.h"
#include "dev/conv3x3/patch_store.h"
#include "dev/ptx/mbarrier.h"

namespace ladder::conv3x3 {

inline constexpr int kChunk = 64;  // channels that are summed over at a time: the 128 bytes of a swizzled row
inline constexpr int kRowBytes = kChunk * 2;
inline constexpr int kMmaK = 16;
inline constexpr int kTileChannels = 64;  // that a block makes
inline constexpr int kTapBytes = kChunk * kTileChannels * 2;
inline constexpr int kHaloBytes = kHaloPixels * kRowBytes;
inline constexpr int kPatchBytes = (kHaloBytes + 1023) / 1024 * 1024;  // a whole number of swizzle patterns
static_assert(kPatchPixels == 64, "the rows of a wgmma");

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
  static_assert(kStages >= 2 * kMaxChunks, "a tile's patches under the one before");

  // Barriers lie where the last stage's last patch ends and its place does not: a fifth stage of
  // 128 channels has no other room.
  static constexpr int kBarriersAt = kStages * kStageBytes - (kPatchBytes - kHaloBytes);
  static_assert((2 * kStages + kMaxChunks * 9 + PingPongOrder::kGroups) * sizeof(ptx::Mbarrier) <=
                kPatchBytes - kHaloBytes);
};

// Blocks of a launch: as many for each tile of channels as there are SMs, or tiles of patches.
template <class Tile>
int num_blocks(const Problem& p, int channel_tiles) {
  const int patch_tiles = ceil_div(num_patches(p), Tile::kPatches);
  return channel_tiles * std::max(1, std::min(backend::device().num_sms / channel_tiles, patch_tiles));
}

// Patches that the busiest block multiplies.
template <class Tile>
int most_patches(const Problem& p, int channel_tiles) {
  const int blocks = num_blocks<Tile>(p, channel_tiles) / channel_tiles;
  return ceil_div(ceil_div(num_patches(p), Tile::kPatches), blocks) * Tile::kPatches;
}

}  // namespace ladder::conv3x3

// Shared memory and registers of a persistent wgmma block: two consumer warpgroups that take tiles by turns, and a producer
// that fills one ring of stages ahead of both.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/backend.h"
#include "core/device.h"
#include "dev/common/ping_pong_order.h"
#include "dev/common/ring.h"
#include "dev/common/wgmma_step.h"
#include "dev/ptx/mbarrier.h"

namespace ladder {

inline constexpr int kConsumerGroups = PingPongOrder::kGroups;
inline constexpr int kGroupThreads = 128;
inline constexpr int kConsumerThreads = kConsumerGroups * kGroupThreads;
inline constexpr int kWgmmaThreads = kConsumerThreads + kGroupThreads;  // registers move between whole warpgroups
inline constexpr int kConsumerRegisters = 232;
inline constexpr int kProducerRegisters = 40;
static_assert(kConsumerThreads * kConsumerRegisters + kGroupThreads * kProducerRegisters <= 65536, "the register file");

// A warpgroup's tile is kBlockM x kBlockN sums, of which a warp has 16 rows of every 64. kStageBytes: a step's terms of both
// operands; kWarpStoreBytes: what a warp's sums pass through on their way to memory.
template <int kBlockM_, int kBlockN_, int kStageBytes_, int kWarpStoreBytes>
struct PersistentTile {
  static constexpr int kBlockM = kBlockM_, kBlockN = kBlockN_, kStageBytes = kStageBytes_;
  static constexpr int kStoreBytes = kConsumerThreads / 32 * kWarpStoreBytes;
  static constexpr int kMaxStages = 12;  // 12 KB each and more: enough in flight for all of memory's rate
  static constexpr int kBarrierBytes =
      (2 * kMaxStages + PingPongOrder::kGroups) * static_cast<int>(sizeof(ptx::Mbarrier));
  static constexpr int kStages = std::min(kMaxStages, (227 * 1024 - kBarrierBytes - kStoreBytes) / kStageBytes);
  static constexpr std::size_t kSmemBytes = std::size_t{kStages} * kStageBytes + kStoreBytes + kBarrierBytes;
  static_assert(kBlockM % 64 == 0 && kStageBytes % 1024 == 0, "wgmma's rows, and whole swizzle patterns");
  static_assert(kStages >= 4, "a tile is loaded while the one before multiplies");
};

// Nanoseconds, roughly, that `tiles` tiles of `steps` steps take; a block's last tile is stored while nothing else happens.
template <class Tile>
double persistent_ns(int tiles, int steps) {
  constexpr double kStepNs = step_ns(Tile::kStageBytes, Tile::kBlockM, Tile::kBlockN);
  constexpr double kStoreNs = Tile::kBlockM * Tile::kBlockN * 2 / 30.0;
  const int rounds = ceil_div(tiles, backend::device().num_sms);
  return rounds * (kStepNs * steps + kStoreNs / 2) + kStoreNs;
}

}  // namespace ladder

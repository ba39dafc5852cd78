// What a block of the persistent wgmma versions has: two consumer warpgroups that take tiles by turns, a producer that runs
// ahead of both through one ring of stages, and how long a layer takes with it.
#pragma once

#include <algorithm>

#include "core/backend.h"
#include "dev/common/ping_pong_order.h"
#include "dev/common/ring.h"
#include "dev/gemm/gemm.h"
#include "dev/ptx/mbarrier.h"

namespace ladder::gemm {

inline constexpr int kStepTerms16 = 64;  // of the sums, 16 bits each: the 128 bytes of a swizzled row
inline constexpr int kStepRowBytes = 128;
inline constexpr int kWgmmaTerms = 16;

inline constexpr int kConsumerGroups = PingPongOrder::kGroups;
inline constexpr int kGroupThreads = 128;
inline constexpr int kConsumerThreads = kConsumerGroups * kGroupThreads;
inline constexpr int kWgmmaThreads = kConsumerThreads + kGroupThreads;  // registers move between whole warpgroups
inline constexpr int kConsumerRegisters = 232;
inline constexpr int kProducerRegisters = 40;
static_assert(kConsumerThreads * kConsumerRegisters + kGroupThreads * kProducerRegisters <= 65536, "the register file");

// A warpgroup's tile is kRows x kBlockN sums, of which a warp has 16 rows of every 64. kStageBytes: a step's terms of both
// operands; kWarpStoreBytes: what a warp's sums pass through on their way to memory.
template <int kRows_, int kBlockN_, int kStageBytes_, int kWarpStoreBytes>
struct PersistentTile {
  static constexpr int kRows = kRows_, kBlockN = kBlockN_, kStageBytes = kStageBytes_;
  static constexpr int kStoreBytes = kConsumerThreads / 32 * kWarpStoreBytes;
  static constexpr int kMaxStages = 12;  // 12 KB each and more: enough under way for all of memory's rate
  static constexpr int kBarrierBytes =
      (2 * kMaxStages + PingPongOrder::kGroups) * static_cast<int>(sizeof(ptx::Mbarrier));
  static constexpr int kStages = std::min(kMaxStages, (227 * 1024 - kBarrierBytes - kStoreBytes) / kStageBytes);
  static constexpr std::size_t kSmemBytes = std::size_t{kStages} * kStageBytes + kStoreBytes + kBarrierBytes;
  static_assert(kRows % 64 == 0 && kStageBytes % 1024 == 0, "wgmma's rows, and whole swizzle patterns");
  static_assert(kStages >= 4, "a tile's loads under the one before");
};

// Nanoseconds, roughly, of an H200, that a step takes a block: its bytes come at an SM's share of the L2's rate, and its
// rows x columns sums are multiplied at three quarters of the tensor cores' rate.
constexpr double step_ns(int stage_bytes, int rows, int columns) {
  return std::max(stage_bytes / 60.0, static_cast<double>(rows) * columns * kStepTerms16 / 2800);
}

// A block's last tile is stored while nothing else happens.
template <class Tile>
double persistent_ns(int tiles, int steps) {
  constexpr double kStepNs = step_ns(Tile::kStageBytes, Tile::kRows, Tile::kBlockN);
  constexpr double kStoreNs = Tile::kRows * Tile::kBlockN * 2 / 30.0;
  const int rounds = ceil_div(tiles, backend::device().num_sms);
  return rounds * (kStepNs * steps + kStoreNs / 2) + kStoreNs;
}

// Of both operands' rows, n and k elements long.
inline const char* rows_for_tma(const Problem& p) {
  return p.n % 8 == 0 && p.k % 8 == 0
             ? nullptr
             : "n or k is not a multiple of 8, but the TMA's strides are multiples of 16 bytes";
}

}  // namespace ladder::gemm

// The tile of wgrad's wgmma versions: both operands as boxes of 64 rows x 64 columns in one ring of stages, a
// warpgroup for every 64 output features, a producer warp, and four warps that sum dy's columns for dbias.
#pragma once

#include <algorithm>

#include "dev/common/box_columns.h"
#include "dev/common/ring.h"
#include "dev/common/wgmma_step.h"
#include "dev/gemm/tma_rows.h"
#include "dev/ptx/mbarrier.h"

namespace ladder::gemm {

inline constexpr int kStepRows = 64;
inline constexpr int kBoxBytes = kStepRows * kStepRowBytes;
inline constexpr int kBiasWarps = kColumnWarps;

// 64 output features for each of kGroups warpgroups x kColumns input features.
template <int kGroups_, int kColumns_>
struct BoxTile {
  static constexpr int kGroups = kGroups_, kColumns = kColumns_;
  static constexpr int kFeatures = kGroups * kBoxColumns;
  static constexpr int kConsumerWarps = kGroups * 4;
  static constexpr int kThreads = (kConsumerWarps + 1 + kBiasWarps) * 32;  // one producer warp
  static constexpr int kStageBytes = (kGroups + kColumns / kBoxColumns) * kBoxBytes;
  static constexpr int kMaxStages = 12;
  static constexpr int kSmemLimit = 227 * 1024 - 2 * kMaxStages * static_cast<int>(sizeof(ptx::Mbarrier));
  static constexpr int kStages = std::min(kMaxStages, kSmemLimit / kStageBytes);
  static constexpr std::size_t kSmemBytes = std::size_t{kStages} * kStageBytes + 2 * kStages * sizeof(ptx::Mbarrier);

  static constexpr double kStepNs = step_ns(kStageBytes, kFeatures, kColumns);

  static int count(const Problem& p) { return ceil_div(p.n, kFeatures) * ceil_div(p.k, kColumns); }
};

}  // namespace ladder::gemm

// Into how many parts a reduction is best split.
#pragma once

#include <algorithm>

#include "core/backend.h"
#include "dev/common/split.h"

namespace ladder {

// Estimated cost of a block, to weigh idle SMs against more partial sums.
struct BlockCost {
  double unit_ns;    // a unit's loads and multiplications by a block that has the SM for itself
  double finish_ns;  // its stores, likewise
  double start_ns;   // before its first multiplication and after its last, whoever else is on the SM
  int blocks_per_sm;
  int busy_blocks = 1;  // to keep an SM busy
};

struct SplitPlan {
  Split split;
  double ns;  // estimated
};

// The split of `units` among the blocks of each of `tiles` tiles that takes the least time: whole waves of blocks, and
// every split's row of partial sums written and read once more.
inline SplitPlan plan_split(double row, int units, int tiles, const BlockCost& cost) {
  constexpr int kMaxWaves = 3;
  const int num_sms = backend::device().num_sms;
  const int slots = num_sms * cost.blocks_per_sm;
  SplitPlan best{};
  for (int splits = 1; splits <= units && (splits == 1 || (splits - 1.0) * tiles < kMaxWaves * slots); ++splits) {
    const int units_per_split = ceil_div(units, splits);
    if (ceil_div(units, units_per_split) != splits) continue;  // a split would be empty
    const int blocks = splits * tiles;
    const int sharing = std::max(cost.busy_blocks, std::min(cost.blocks_per_sm, ceil_div(blocks, num_sms)));
    const double waves = std::max(1.0, (double(blocks) / slots + ceil_div(blocks, slots)) / 2);
    double ns = waves * (cost.start_ns + sharing * (units_per_split * cost.unit_ns + cost.finish_ns));
    if (splits > 1) ns += kReduceNs + splits * 8 * row / kPartialBytesPerNs;
    if (splits == 1 || ns < best.ns) best = {{splits, units_per_split}, ns};
  }
  return best;
}

// Which of a version's tiles takes the least time.
template <std::size_t kCount>
std::size_t fastest(const SplitPlan (&tiles)[kCount]) {
  return std::min_element(tiles, tiles + kCount, [](const SplitPlan& a, const SplitPlan& b) { return a.ns < b.ns; }) -
         tiles;
}

}  // namespace ladder

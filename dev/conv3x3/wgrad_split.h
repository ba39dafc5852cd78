// Split of wgrad's pixels over blocks: the reduction runs over all pixels, far more than a block should add up, while
// the outputs are few.
#pragma once

#include "core/backend.h"
#include "dev/conv3x3/wgrad_partial_sums.h"

namespace ladder::conv3x3 {

// Rough cost of a version's block, to weigh idle SMs against more partial sums.
struct BlockCost {
  double unit_ns;   // a unit's multiplications and loads, with blocks_per_sm blocks side by side
  double start_ns;  // before its first multiplication and after its last
  int blocks_per_sm;
};

struct SplitPlan {
  Split split;
  double ns;  // estimated
};

// Returns the split of `units` over the blocks of each of `tiles` tiles that takes the least time: whole waves of
// blocks, and every split's row of `row` partial sums written and read once more.
inline SplitPlan plan_split(int row, int units, int tiles, const BlockCost& cost) {
  constexpr double kBytesPerNs = 3000;  // of partial sums through L2
  constexpr int kMaxWaves = 3;
  const int slots = backend::device().num_sms * cost.blocks_per_sm;
  const double row_ns = 8.0 * row / kBytesPerNs;
  SplitPlan best{};
  for (int splits = 1; splits <= units && (splits == 1 || (splits - 1) * tiles < kMaxWaves * slots); ++splits) {
    const int units_per_split = ceil_div(units, splits);
    if (ceil_div(units, units_per_split) != splits) continue;  // a split would be empty
    const double ns =
        ceil_div(splits * tiles, slots) * (cost.start_ns + units_per_split * cost.unit_ns) + splits * row_ns;
    if (splits == 1 || ns < best.ns) best = {{splits, units_per_split}, ns};
  }
  return best;
}

// Stores kVec elements in shared memory, not transposed: the reduction is outermost.
template <int kVec>
__device__ __forceinline__ void put_run(float* to, const float (&run)[kVec]) {
  if constexpr (kVec == 4) {
    *reinterpret_cast<float4*>(to) = {run[0], run[1], run[2], run[3]};
  } else {
    *to = run[0];
  }
}

}  // namespace ladder::conv3x3

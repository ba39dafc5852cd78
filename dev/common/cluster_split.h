// Split of a reduction over clusters of blocks, which add up in their own shared memory: the number of clusters and
// their size.
#pragma once

#include <algorithm>

#include "core/backend.h"
#include "core/device.h"
#include "core/occupancy.h"

namespace ladder {

// Split of a tile's reduction: `clusters` clusters of `ranks` blocks, each block with `units_per_block` units, steps of
// its loop. The last blocks may
// have fewer units, or none.
struct ClusterSplit {
  int clusters = 1;
  int ranks = 1;
  int units_per_block = 1;
};

// Rough costs of a version's block, in nanoseconds.
struct ClusterCost {
  double unit_ns;      // a unit's loads and multiplications
  double start_ns;     // before its first multiplication and after its last
  double exchange_ns;  // to read a full tile from other blocks
  double partials_ns;  // per cluster, if there are several: its partial sums written and read once more
  double second_ns;    // the kernel that adds the partial sums, whatever their number
};

struct ClusterPlan {
  ClusterSplit split;
  double ns = 0;  // estimated
};

// Returns the split that takes the least estimated time for `tiles` tiles of `units` units each, with one block per SM.
// Clusters of more than two blocks leave SMs idle: 12 of 132.
inline ClusterPlan plan_cluster_split(int units, int tiles, const ClusterCost& cost) {
  const int num_sms = backend::device().num_sms;
  ClusterPlan best{};
  for (int ranks = 1; ranks <= kMaxClusterBlocks; ranks *= 2) {
    const int slots = std::max(1, (ranks > 2 ? num_sms - num_sms / 11 : num_sms) / ranks);
    for (int clusters = 1; (clusters - 1) * ranks < units && (clusters == 1 || clusters * tiles <= slots); ++clusters) {
      const int units_per_block = ceil_div(units, clusters * ranks);
      double ns = ceil_div(clusters * tiles, slots) *
                  (cost.start_ns + units_per_block * cost.unit_ns + (ranks > 1 ? 1000 + cost.exchange_ns : 0));
      if (clusters > 1) ns += cost.second_ns + clusters * cost.partials_ns;
      if (best.ns == 0 || ns < best.ns) best = {{clusters, ranks, units_per_block}, ns};
    }
  }
  return best;
}

}  // namespace ladder

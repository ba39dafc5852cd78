// A reduction split over the blocks of clusters, which add up in their own shared memory: how many of which size.
#pragma once

#include <algorithm>

#include "core/backend.h"
#include "core/device.h"
#include "core/occupancy.h"

namespace ladder {

// How units of a reduction are split: into `clusters` of `ranks` blocks, each of which has `each` units; the last blocks
// may have fewer, or none.
struct ClusterSplit {
  int clusters = 1;
  int ranks = 1;
  int each = 1;
};

// What a version's block costs, roughly, in nanoseconds.
struct ClusterCost {
  double unit_ns;      // a unit's multiplications and loads
  double start_ns;     // before its first multiplication and after its last
  double exchange_ns;  // to read a whole tile from other blocks
  double partials_ns;  // of each cluster's partial sums, written and read once more, where there is more than one
  double second_ns;    // of the kernel that adds these, whatever it adds
};

struct ClusterPlan {
  ClusterSplit split;
  double ns = 0;  // estimated
};

// The split of `units` among the blocks of each of `tiles` tiles that takes the least time, a block an SM. Clusters of more
// than two leave SMs idle, of 132 twelve.
inline ClusterPlan plan_cluster_split(int units, int tiles, const ClusterCost& cost) {
  const int num_sms = backend::device().num_sms;
  ClusterPlan best{};
  for (int ranks = 1; ranks <= kMaxClusterBlocks; ranks *= 2) {
    const int slots = std::max(1, (ranks > 2 ? num_sms - num_sms / 11 : num_sms) / ranks);
    for (int clusters = 1; (clusters - 1) * ranks < units && (clusters == 1 || clusters * tiles <= slots); ++clusters) {
      const int each = ceil_div(units, clusters * ranks);
      double ns = ceil_div(clusters * tiles, slots) *
                  (cost.start_ns + each * cost.unit_ns + (ranks > 1 ? 1000 + cost.exchange_ns : 0));
      if (clusters > 1) ns += cost.second_ns + clusters * cost.partials_ns;
      if (best.ns == 0 || ns < best.ns) best = {{clusters, ranks, each}, ns};
    }
  }
  return best;
}

}  // namespace ladder

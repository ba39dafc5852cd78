// What a block of a cluster knows of the others: a vector clock with one entry a block.
//
// A block's own entry counts its releases (arrivals at the cluster's barrier and at mbarriers of other blocks), from 1 on.
// What it did up to its release number t is ordered before everything that a block does once its entry for it is t or
// more. Entry 0: it is not even known to have started. The threads of a block count as one, so that an order that only
// some of them saw is taken for all: the clocks never raise a false alarm, and ThreadSanitizer, which has one a thread,
// sees what they miss.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ladder::simt {

inline constexpr int kMaxClusterBlocks = 16;

struct ClusterClock {
  std::uint32_t of[kMaxClusterBlocks] = {};

  void merge(const ClusterClock& other) {
    for (int i = 0; i < kMaxClusterBlocks; ++i) of[i] = std::max(of[i], other.of[i]);
  }
};

}  // namespace ladder::simt

// Vector clock of a block in a cluster, with one entry per block: the releases of other blocks that it has acquired.
//
// A block's own entry counts its releases (arrivals at the cluster's barrier and at mbarriers of other blocks), from 1
// on. All that block A did up to its release number t is ordered before everything that block B does once B's entry for
// A is t or more. Entry 0: A is not even known to have started. The threads of a block share one clock, so that an
// order which only some of them saw counts for all: the clocks never raise a false alarm, and preset order, which
// has a clock per thread (order.h), sees what they miss.
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

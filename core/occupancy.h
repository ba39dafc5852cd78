// How many blocks may share a slab, and how many of a launch the card has room for.
#pragma once

#include <algorithm>

#include "core/backend.h"
#include "core/ceil_div.h"
#include "core/cluster_shape.h"

namespace ladder {

// The cluster size that any card with clusters has room for.
inline constexpr int kMaxClusterBlocks = static_cast<int>(kMaxPortableClusterBlocks);

// What the data centre's cards have room for (CUDA programming guide, thread block clusters).
inline constexpr int kMaxBigClusterBlocks = 2 * kMaxClusterBlocks;

// What the card at hand has room for.
inline int most_cluster_blocks() {
  const int arch = backend::device().arch;
  return arch >= 90 && arch < 120 ? kMaxBigClusterBlocks : kMaxClusterBlocks;
}

// Shared memory that a block may have.
inline int most_smem_bytes() {
  constexpr int kKilobyte = 1024;
  const int arch = backend::device().arch;
  return (arch >= 90 && arch < 120 ? 227 : arch == 80 ? 163 : 99) * kKilobyte;
}

// Blocks that an SM's shared memory has room for.
inline int blocks_per_sm(int smem_bytes) {
  constexpr int kReserved = 1024;  // of every block
  return (most_smem_bytes() + kReserved) / (smem_bytes + kReserved);
}

// Clusters that take turns, as far as can be said without asking the driver.
struct Turns {
  int most_blocks = 0;  // of an SM at a time; 0: not even one fits
  double waves = 0;     // of clusters; half of what the last one lacks counts as there
  double blocks = 0;    // of an SM, all waves together
};

inline Turns turns_of(int clusters, int cluster_blocks, int threads, int smem_bytes, int threads_per_sm) {
  if (smem_bytes > most_smem_bytes()) return {};
  // Clusters of four or eight leave SMs idle, of 132 twelve, those of 16 twenty.
  const int num_sms = backend::device().num_sms;
  const int idle_sms = cluster_blocks > 8 ? num_sms / 6 : cluster_blocks > 2 ? num_sms / 11 : 0;
  Turns turns{.most_blocks = std::min(threads_per_sm / threads, blocks_per_sm(smem_bytes)),
              .blocks = double(clusters) * cluster_blocks / num_sms};
  const int resident = std::max(1, (num_sms - idle_sms) * turns.most_blocks / cluster_blocks);
  turns.waves = std::max(1.0, (double(clusters) / resident + ceil_div(clusters, resident)) / 2);
  return turns;
}

// Whether `bytes` fit the L2: if so, loads with evict-first priority keep the rest of its content.
inline bool fits_l2(double bytes) { return bytes <= static_cast<double>(backend::device().l2_bytes); }

}  // namespace ladder

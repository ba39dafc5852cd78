// Occupancy: the largest cluster, shared memory of a block, and resident blocks and clusters of a launch.
#pragma once

#include <algorithm>

#include "core/backend.h"
#include "core/ceil_div.h"
#include "core/cluster_shape.h"

namespace ladder {

// Largest cluster, in blocks, that every card with clusters has room for.
inline constexpr int kMaxClusterBlocks = static_cast<int>(kMaxPortableClusterBlocks);

// Largest cluster, in blocks, of the data centre's cards (CUDA programming guide, thread block clusters).
inline constexpr int kMaxBigClusterBlocks = 2 * kMaxClusterBlocks;

// Largest cluster, in blocks, of the current device.
inline int most_cluster_blocks() {
  const int arch = backend::device().arch;
  return arch >= 90 && arch < 120 ? kMaxBigClusterBlocks : kMaxClusterBlocks;
}

// Most shared memory of a block, in bytes.
inline int most_smem_bytes() {
  constexpr int kKilobyte = 1024;
  const int arch = backend::device().arch;
  return (arch >= 90 && arch < 120 ? 227 : arch == 80 ? 163 : 99) * kKilobyte;
}

// Blocks of `smem_bytes` that fit the shared memory of an SM.
inline int blocks_per_sm(int smem_bytes) {
  constexpr int kReserved = 1024;  // bytes of every block
  return (most_smem_bytes() + kReserved) / (smem_bytes + kReserved);
}

// Waves of a launch's clusters, estimated without asking the driver.
struct Turns {
  int most_blocks = 0;  // resident blocks of an SM; 0: not even one fits
  double waves = 0;     // mean of the fractional number of waves and that number rounded up
  double blocks = 0;    // blocks of an SM over all waves
};

inline Turns turns_of(int clusters, int cluster_blocks, int threads, int smem_bytes, int threads_per_sm) {
  if (smem_bytes > most_smem_bytes()) return {};
  // SMs that clusters leave idle, of 132: twelve with clusters of four or eight blocks, twenty with 16.
  const int num_sms = backend::device().num_sms;
  const int idle_sms = cluster_blocks > 8 ? num_sms / 6 : cluster_blocks > 2 ? num_sms / 11 : 0;
  Turns turns{.most_blocks = std::min(threads_per_sm / threads, blocks_per_sm(smem_bytes)),
              .blocks = double(clusters) * cluster_blocks / num_sms};
  const int resident = std::max(1, (num_sms - idle_sms) * turns.most_blocks / cluster_blocks);
  turns.waves = std::max(1.0, (double(clusters) / resident + ceil_div(clusters, resident)) / 2);
  return turns;
}

// Returns true if `bytes` fit the L2. Loads with evict-first priority then keep the rest of the L2's content.
inline bool fits_l2(double bytes) { return bytes <= static_cast<double>(backend::device().l2_bytes); }

}  // namespace ladder

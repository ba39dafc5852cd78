// When the clusters of a grid begin to load. If those that the card has room for begin all at once, they wait for memory
// together, compute together while memory idles, and then store together. Here each begins when memory has had the time to
// serve those before it, so that early ones compute and store while late ones load. Those of later waves begin when others
// end, which is spread over time by then.
#pragma once

#include <algorithm>

#include "core/backend.h"
#include "core/device.h"
#include "dev/ptx/clock.h"

namespace ladder {

struct StaggeredStart {
  int clusters = 0;       // of the grid's first ones, which the card has room for at once
  unsigned interval = 0;  // from one of them to the next, in 1/256 clocks of an SM
};

// The number of the block's cluster in the grid. Clusters are of 1 << log_cluster blocks, neighbours in x.
__device__ __forceinline__ int cluster_index(int log_cluster) {
  return static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x) >> log_cluster;
}

// By all threads of a block of that cluster.
__device__ __forceinline__ void wait_for_start(const StaggeredStart& start, int index) {
  if (index >= start.clusters) return;
  // One thread watches the clock. Others would take issue slots from the blocks that compute.
  if (threadIdx.x + threadIdx.y == 0) ptx::wait_clocks(index * start.interval >> 8);
  __syncthreads();
}

// For a grid that loads `bytes`, each cluster an equal share.
template <class... P>
StaggeredStart staggered_start(void (*kernel)(P...), const LaunchConfig& config, double bytes) {
  // Of what DRAM could move: the rate at which clusters begin. Fitted to sweeps on an H200: 4.4 TB/s at the clock that it
  // announces, 4.0 at the one it keeps. A quarter more or less makes no difference that shows.
  constexpr double kShare = 0.92;
  // What the first wave's loads must take to be worth it: less is in flight at a time anyway. Likewise fitted.
  constexpr double kMinSeconds = 1.2e-6;
  const backend::DeviceInfo& device = backend::device();
  const double rate = kShare * device.dram_bytes_per_s;  // 0: the emulator, which has no time, but the barrier
  const double least = kMinSeconds * rate;
  if (bytes < least) return {};
  const int clusters = static_cast<int>(config.grid.x * config.grid.y / config.cluster_blocks());
  const int first = std::min(resident_clusters(kernel, config), clusters);
  const double each = bytes / clusters;
  if (first * each < least) return {};
  const double clocks = rate > 0 ? each / rate * device.sm_clock_khz * 1e3 : 0;
  return {.clusters = first, .interval = static_cast<unsigned>(clocks * 256)};
}

}  // namespace ladder

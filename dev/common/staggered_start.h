// Staggered start of a grid's clusters. If all resident clusters start to load at once, they wait for memory together,
// compute together while memory idles, and then store together. Here a cluster starts when memory has had the time to
// serve the clusters before it, so that early ones compute and store while late ones load. Clusters of later waves
// start when others end, which is spread over time by then.
#pragma once

#include <algorithm>

#include "core/backend.h"
#include "core/device.h"
#include "dev/ptx/clock.h"

namespace ladder {

struct StaggeredStart {
  int clusters = 0;       // first clusters of the grid, which are resident at once
  unsigned interval = 0;  // between the starts of two clusters, in 1/256 clocks of an SM
};

// Index of the block's cluster in the grid. A cluster is 1 << log_cluster blocks adjacent in x.
__device__ __forceinline__ int cluster_index(int log_cluster) {
  return static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x) >> log_cluster;
}

// Wait for the start of cluster `index`; all threads of its blocks call.
__device__ __forceinline__ void wait_for_start(const StaggeredStart& start, int index) {
  if (index >= start.clusters) return;
  // Only one thread watches the clock: others would take issue slots from the blocks that compute.
  if (threadIdx.x + threadIdx.y == 0) ptx::wait_clocks(index * start.interval >> 8);
  __syncthreads();
}

// Plan for a grid that loads `bytes`, an equal part per cluster.
template <class... P>
StaggeredStart staggered_start(void (*kernel)(P...), const LaunchConfig& config, double bytes) {
  // Rate at which clusters start, as a fraction of DRAM bandwidth. Fitted to sweeps on an H200: 4.4 TB/s at the SM clock
  // that it announces, 4.0 TB/s at the clock that it keeps. A quarter more or less makes no visible difference.
  constexpr double kBandwidthFraction = 0.92;
  // Least load time of the first wave for which a stagger pays: a smaller wave is all in flight at a time anyway.
  // Likewise fitted.
  constexpr double kMinSeconds = 1.2e-6;
  const backend::DeviceInfo& device = backend::device();
  const double rate =
      kBandwidthFraction * device.dram_bytes_per_s;  // 0 in the emulator, which has no time: the barrier remains
  const double least = kMinSeconds * rate;
  if (bytes < least) return {};
  const int clusters = static_cast<int>(config.grid.x * config.grid.y / config.cluster_blocks());
  const int first = std::min(resident_clusters(kernel, config), clusters);
  const double bytes_per_cluster = bytes / clusters;
  if (first * bytes_per_cluster < least) return {};
  const double clocks = rate > 0 ? bytes_per_cluster / rate * device.sm_clock_khz * 1e3 : 0;
  return {.clusters = first, .interval = static_cast<unsigned>(clocks * 256)};
}

}  // namespace ladder

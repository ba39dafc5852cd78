// Plans of kernels that keep dz in shared memory between the pass that makes the sums and the pass that uses them (v09 and
// later): how the channels and pixels of an image are shared out. dz_plan.cpp chooses them.
#pragma once

#include "core/ceil_div.h"
#include "dev/groupnorm/groupnorm.h"

namespace ladder::groupnorm::dz_kept {

inline constexpr int kMaxThreads = 256;
inline constexpr int kThreadsPerSm = 768;  // that have 80 registers each
inline constexpr int kStepsAtOnce = 2;     // pixels that a thread has in hand

// A block has `each` pixels of a chunk of channels, a thread every rows-th pixel of four channels. What a kernel would have to
// divide for is here.
struct Plan {
  int chunk = 0;  // channels, whole groups; 0: there is no plan
  int width = 0;  // channels of a group
  int groups = 0;
  unsigned by_width = 0;  // 2^20 / width, rounded up
  int log_channels = 0;   // of a warp's lanes, those for each group: one for each of its channels, if a warp has them
  int log_ranks = 0;      // likewise, if all groups of the block have a warp together
  int log_cluster = 0;
  int each = 0;
  int quads = 0;  // of a pixel
  int rows = 0;   // pixels that a block's threads take at a time
  int warps = 0;
  int steps = 0;          // how often they take some; a multiple of kStepsAtOnce
  int half = 0;           // likewise: those that are copied first
  int senders = 0;        // of sums of a channel in a block: warps, or rows where those are wider
  int parts = 0;          // places for them: as many, or half as many, rounded up, if they fold
  unsigned by_quads = 0;  // 65536 / quads, rounded up
  float inverse_m = 0;
  bool reads_once = false;  // loads leave the L2 before anything else does, where the version can ask for it

  __host__ __device__ int cluster() const { return 1 << log_cluster; }
  __host__ __device__ int threads() const { return warps * 32; }
};

// What a version asks of its plans.
struct Needs {
  int (*sums_bytes)(const Plan& plan);  // shared memory of a block, besides x and dz
  bool group_sums = false;              // sums of groups cross the cluster: up to 16 blocks, 32 groups; places may fold
  int threads_per_sm = kThreadsPerSm;
  bool words = false;  // dx may have addends, or sums of its own
  bool split = false;  // x may be two tensors
};

// What a version's plans cost, fitted to a sweep of all of them for the shapes of `perf` on an H200.
struct Costs {
  double line = 0;        // what the rest of a line costs, of what it would if it were needed
  double step_ns = 0;     // of a thread
  double cluster_ns = 0;  // more for a cluster than for one of half its blocks
  double seen = 0;        // the share of the two that other blocks do not hide in later waves
  bool in_step = false;   // whether the first wave takes as long as the SM that has most of it
};

// The plan of the lowest cost.
Plan plan_of(const Problem& p, const Needs& needs, const Costs& costs);
Plan plan_of_turns(const Problem& p, const Needs& needs);  // for group sums
const char* supports(const Problem& p, const Needs& needs);
int smem_bytes(const Problem& p, const Plan& plan, const Needs& needs);

}  // namespace ladder::groupnorm::dz_kept

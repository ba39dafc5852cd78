// Plans of the kernels that keep dz in shared memory between the summing pass and the dx pass (v09 and later): the
// split of an image's channels and pixels over clusters, blocks and threads. dz_plan.cpp chooses them.
#pragma once

#include "core/ceil_div.h"
#include "dev/groupnorm/groupnorm.h"

namespace ladder::groupnorm::dz_kept {

inline constexpr int kMaxThreads = 256;
inline constexpr int kThreadsPerSm = 768;  // at 80 registers each
inline constexpr int kStepsAtOnce = 2;     // pixels that a thread works on at once

// A block has `each` pixels of a chunk of channels, a thread every rows-th pixel of four channels. Quotients are
// precomputed, so that kernels need no division.
struct Plan {
  int chunk = 0;          // channels, whole groups; 0: no plan
  int width = 0;          // channels of a group
  int groups = 0;         // of a chunk
  unsigned by_width = 0;  // 2^20 / width, rounded up
  int log_channels = 0;   // log2 of the lanes that sum a group's channels: one a channel, at most 32
  int log_ranks = 0;      // log2 of the lanes that sum a group's ranks: all groups share one warp
  int log_cluster = 0;
  int each = 0;   // pixels of a block
  int quads = 0;  // of a pixel
  int rows = 0;   // pixels that a block's threads take at a time
  int warps = 0;
  int steps = 0;            // times that they do; a multiple of kStepsAtOnce
  int half = 0;             // steps of the first of two cp.async groups; a multiple of kStepsAtOnce
  int senders = 0;          // partial sums of a channel in a block: one a warp, or one a row if a row fills a warp
  int parts = 0;            // rows of shared memory for them: as many, or half, rounded up, if two senders share a row
  unsigned by_quads = 0;    // 65536 / quads, rounded up
  float inverse_m = 0;      // 1 / elements of a group
  bool reads_once = false;  // x and dy are loaded with L2 evict-first priority, if the version has it

  __host__ __device__ int cluster() const { return 1 << log_cluster; }
  __host__ __device__ int threads() const { return warps * 32; }
};

// Requirements of a version on its plans.
struct Needs {
  int (*sums_bytes)(const Plan& plan);  // of shared memory in a block, besides x and dz
  bool group_sums = false;  // blocks exchange sums of groups: up to 16 blocks, 32 groups; senders may share a row
  int threads_per_sm = kThreadsPerSm;
  bool words = false;  // dx may have addends or de
  bool split = false;  // x may be two tensors
};

// Cost model of a version's plans, fitted to a sweep of all plans for the shapes of `perf` on an H200.
struct Costs {
  double line = 0;        // cost of a line's unused bytes, as a fraction of that of used ones
  double step_ns = 0;     // per step of a thread
  double cluster_ns = 0;  // per doubling of the cluster
  double seen = 0;        // fraction of these two that other blocks do not hide in later waves
  bool in_step = false;   // the first wave takes as long as the SM with most of its blocks
};

// Returns the plan of the lowest cost.
Plan plan_of(const Problem& p, const Needs& needs, const Costs& costs);
Plan plan_of_turns(const Problem& p, const Needs& needs);  // for group sums
const char* supports(const Problem& p, const Needs& needs);
int smem_bytes(const Problem& p, const Plan& plan, const Needs& needs);

}  // namespace ladder::groupnorm::dz_kept

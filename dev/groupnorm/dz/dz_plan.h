// Plans of the backward kernels that keep dz in shared memory between the summing pass and the dx pass (v09 and later,
// except v10): the split of an image over clusters, blocks and threads. dz_plan.cpp chooses them.
//
// A cluster has a slab: all pixels of an image in a chunk of channels, whole groups. Its blocks split the pixels.
#pragma once

#include "core/ceil_div.h"
#include "dev/groupnorm/groupnorm.h"

namespace ladder::groupnorm::dz_kept {

inline constexpr int kMaxThreads = 256;
inline constexpr int kThreadsPerSm = 768;  // most resident threads, of 80 registers each
inline constexpr int kStepsAtOnce = 2;     // steps, of a pixel each, that a thread works on at once

// A block has `each` adjacent pixels of the slab. A thread has a quad, four adjacent channels, of every rows-th pixel
// of the block: one pixel a step. Reciprocals are precomputed, so that kernels need no division.
struct Plan {
  int chunk = 0;          // channels, whole groups; 0: no plan
  int width = 0;          // channels of a group
  int groups = 0;         // of a chunk
  unsigned by_width = 0;  // 2^20 / width + 1: channel / width is channel * by_width >> 20
  int log_channels = 0;   // log2 of the lanes that add up a group's channels: one a channel, at most 32
  int log_ranks = 0;      // log2 of the lanes that add up a group's sums of all ranks: one warp does all groups
  int log_cluster = 0;
  int each = 0;   // pixels of a block; the last block may have fewer
  int quads = 0;  // of a pixel in the chunk
  int rows = 0;   // pixels of a block's step: its threads are rows x quads, and some idle ones
  int warps = 0;
  int steps = 0;    // of a block: each / rows, rounded up to a multiple of kStepsAtOnce
  int half = 0;     // steps of the first of two cp.async groups; a multiple of kStepsAtOnce
  int senders = 0;  // partial sums of a channel in a block: one a warp, or one a row if a row has 32 quads or more
  int parts = 0;    // rows [chunk] of shared memory for them: one each, or half as many, rounded up, if two share a row
  unsigned by_quads = 0;    // 65536 / quads + 1: thread / quads is thread * by_quads >> 16
  float inverse_m = 0;      // 1 / elements of a group
  bool reads_once = false;  // x, dy and dx fit the L2: load x and dy with evict-first priority, for group sums only

  __host__ __device__ int cluster() const { return 1 << log_cluster; }
  __host__ __device__ int threads() const { return warps * 32; }
};

// Requirements of a version on its plans.
struct Needs {
  int (*sums_bytes)(const Plan& plan);  // shared memory of a block after its slab of x and dz
  bool group_sums = false;  // blocks exchange sums of groups: up to 16 blocks, 32 groups; senders may share a row
  int threads_per_sm = kThreadsPerSm;
  bool words = false;  // runs problems with the words `addend` and `embedding` (groupnorm.h)
  bool split = false;  // runs problems whose x is two tensors
};

// Cost model of a version's plans, fitted to a sweep of all plans for the shapes of `perf` on an H200.
struct Costs {
  double line = 0;        // memory time of an unused byte of a 128-byte line, as a fraction of a used byte's
  double step_ns = 0;     // per step of a thread
  double cluster_ns = 0;  // per doubling of the cluster
  double seen = 0;        // fraction of step_ns and cluster_ns that other blocks do not hide after the first wave
  bool in_step = false;   // the first wave takes as long as its fullest SM: round an SM's blocks up to whole ones
};

// Returns the plan of the lowest cost; its chunk is 0 if none fits.
Plan plan_of(const Problem& p, const Needs& needs, const Costs& costs);
Plan plan_of_turns(const Problem& p, const Needs& needs);  // for group sums, with their own cost model
const char* supports(const Problem& p, const Needs& needs);
int smem_bytes(const Problem& p, const Plan& plan, const Needs& needs);

}  // namespace ladder::groupnorm::dz_kept

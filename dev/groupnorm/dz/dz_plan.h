// Plans of the backward kernels that keep dz in shared memory between the summing pass and the dx pass (v09 and later,
// except v10): the split of an image over clusters, blocks and threads. dz_plan.cpp chooses them.
//
// A cluster has a slab: all pixels of an image in a chunk of channels, whole groups. Its blocks split the pixels.
#pragma once

#include "core/ceil_div.h"
#include "dev/groupnorm/groupnorm.h"

namespace ladder::groupnorm::resident_dz {

inline constexpr int kMaxThreads = 256;
inline constexpr int kThreadsPerSm = 768;  // most resident threads, of 80 registers each
inline constexpr int kStepsAtOnce = 2;     // steps, of a pixel each, that a thread works on at once

// A block has adjacent pixels of the slab. A thread has a quad, four adjacent channels, of every pixel_rows-th pixel of
// the block: one pixel a step. Reciprocals are precomputed, so that kernels need no division.
struct DzPlan {
  int chunk = 0;                  // channels, whole groups; 0: no plan
  int channels_per_group = 0;     // the width of a group
  int groups = 0;                 // groups per chunk
  unsigned reciprocal_width = 0;  // 2^20 / channels_per_group + 1, see group_of()
  int log_channels = 0;           // log2 of the lanes that add up a group's channels: one a channel, at most 32
  int log_ranks = 0;              // log2 of the lanes that add up a group's sums of all ranks: one warp does all groups
  int log_cluster = 0;            // log2 of the blocks per cluster
  int pixels_per_block = 0;       // the last block may have fewer
  int quads = 0;                  // quads of a pixel in the chunk
  int pixel_rows = 0;    // pixels that a block takes per step: its threads are pixel_rows x quads, and some idle ones
  int warps = 0;         // warps per block
  int steps = 0;         // steps per block: pixels_per_block / pixel_rows, up to a multiple of kStepsAtOnce
  int first_steps = 0;   // steps of the first of two cp.async groups; a multiple of kStepsAtOnce
  int partial_sums = 0;  // partial sums of a channel in a block: one a warp, or one a pixel row of 32 quads or more
  int partial_rows = 0;  // rows [chunk] of shared memory for them: as many, or half, rounded up, if two share a row
  unsigned reciprocal_quads = 0;  // 65536 / quads + 1: thread / quads is thread * reciprocal_quads >> 16
  float inverse_m = 0;            // 1 / elements of a group
  bool reads_once = false;  // x, dy and dx fit the L2: load x and dy with evict-first priority, for group sums only

  __host__ __device__ int cluster() const { return 1 << log_cluster; }
  __host__ __device__ int threads() const { return warps * 32; }
};

// Requirements of a version on its plans.
struct Needs {
  int (*sums_bytes)(const DzPlan& plan);  // shared memory of a block after its slab of x and dz
  bool group_sums = false;  // blocks exchange sums of groups: up to 16 blocks, 32 groups; partial sums may share rows
  int threads_per_sm = kThreadsPerSm;
  bool fuses_neighbours = false;  // runs problems with the words `addend` and `embedding` (groupnorm.h)
  bool split = false;             // runs problems whose x is two tensors
};

// Cost model of a version's plans, fitted to a sweep of all plans for the shapes of `perf` on an H200.
struct Costs {
  double line = 0;        // memory time of an unused byte of a 128-byte line, as a fraction of a used byte's
  double step_ns = 0;     // per step of a thread
  double cluster_ns = 0;  // per doubling of the cluster
  double exposed = 0;     // fraction of step_ns and cluster_ns that other blocks do not hide after the first wave
  bool rounds_up_blocks = false;  // the first wave takes as long as its fullest SM
};

// Returns the plan of the lowest cost; its chunk is 0 if none fits.
DzPlan plan_of(const Problem& p, const Needs& needs, const Costs& costs);
DzPlan plan_of_turns(const Problem& p, const Needs& needs);  // for group sums, with their own cost model
const char* supports(const Problem& p, const Needs& needs);
int smem_bytes(const Problem& p, const DzPlan& plan, const Needs& needs);

}  // namespace ladder::groupnorm::resident_dz

// How the forward passes by the tensor core, v09 and later, cut a problem: chunks of whole groups, clusters, threads. A slab
// is the pixels of an image times a chunk of its channels, in the shared memory of a block or of the blocks of a cluster.
#pragma once

#include <cstdint>
#include <optional>

#include "dev/groupnorm/groupnorm.h"

namespace ladder::groupnorm::tensor_core {

inline constexpr int kMaxThreads = 384;
inline constexpr int kBlocksPerSm = 2;  // of kMaxThreads; or six of 128, for which shared memory has room
inline constexpr int kTile = 32;        // pixels that a warp adds up at a time: four matrices of 8, or a lane each

// A block has `pixels` pixels of a chunk of channels, `row` vectors wide.
struct Plan {
  int channels = 0;  // of the chunk; 0: there is no plan
  int groups = 0;
  int width = 0;  // channels of a group
  int row = 0;
  int swizzle_shift = 0;  // see swizzled()
  int log_cluster = 0;
  int pixels = 0;            // of a block; the last ones of a cluster may have fewer
  int tiles = 0;             // of a block; the slab is zero after its pixels
  int threads = 0;           // whole rows, a multiple of 8 of them where vectors are swizzled
  int parts = 0;             // into which a column's tiles are divided, so that every warp has its share
  unsigned by_row = 0;       // see divided()
  unsigned by_width = 0;     // likewise
  float inverse_m = 0;       // 1 / elements of a group
  float max_mean_ratio = 0;  // of mean^2 over the variance: beyond it sums are about a pivot
};

// A chunk of `groups` of the problem's groups, if these are whole vectors.
std::optional<Plan> chunk_of(const Problem& p, int groups);

// Pixels and tiles of a block, in clusters of 1 << log_cluster blocks.
void divide_pixels(const Problem& p, int log_cluster, Plan& plan);

// What follows from the chunk, the cluster and the threads.
void complete(const Problem& p, Plan& plan);

// Least number of threads: whole warps and whole rows, 8 of these where vectors are swizzled.
int thread_step(const Plan& plan);

std::int64_t slab_bytes(const Plan& plan);

// The parameters that v09 and v10 differ in.
struct TuningParameters {
  int least_even_cluster = 1;        // from this size on there should be several blocks an SM
  int least_pixels = 0;              // of a block, below which it is not cut for that
  int good_threads = 256;            // of an SM
  int column_threads = kMaxThreads;  // up to which a block has a warp for each column, however few are good
};
Plan plan_of(const Problem& p, const TuningParameters& tuning);

// Null, or why the problem has no plan.
const char* refusal(const Problem& p, const Plan& plan);

}  // namespace ladder::groupnorm::tensor_core

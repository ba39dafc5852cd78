// Plans of the forward passes that sum by the tensor core (v09 and later): chunks of whole groups, clusters, threads. A
// slab is the pixels of an image times a chunk of its channels, in the shared memory of a block or of the blocks of a
// cluster.
#pragma once

#include <cstdint>
#include <optional>

#include "dev/groupnorm/groupnorm.h"

namespace ladder::groupnorm::tensor_core {

inline constexpr int kMaxThreads = 384;
inline constexpr int kBlocksPerSm = 2;  // at kMaxThreads; or six at 128, for which shared memory has room
inline constexpr int kTile = 32;        // pixels that a warp adds up at a time: four matrices of 8, or a lane each

// A block has `pixels` pixels of a chunk of channels, `row` vectors wide.
struct Plan {
  int channels = 0;  // of the chunk; 0: no plan
  int groups = 0;
  int width = 0;  // channels of a group
  int row = 0;
  int swizzle_shift = 0;  // see swizzled()
  int log_cluster = 0;
  int pixels = 0;            // of a block; the last ones of a cluster may have fewer
  int tiles = 0;             // of a block; the slab is zero after its pixels
  int threads = 0;           // whole rows, a multiple of 8 of them where vectors are swizzled
  int parts = 0;             // parts of a column's tiles, so that every warp has the same work
  unsigned by_row = 0;       // see divided()
  unsigned by_width = 0;     // likewise
  float inverse_m = 0;       // 1 / elements of a group
  float max_mean_ratio = 0;  // of mean^2 over the variance; above it sums are taken about a pivot
};

// Returns a plan with chunks of `groups` groups, or nothing if such a chunk is no multiple of a vector.
std::optional<Plan> chunk_of(const Problem& p, int groups);

// Sets the pixels and tiles of a block for clusters of 1 << log_cluster blocks.
void divide_pixels(const Problem& p, int log_cluster, Plan& plan);

// Sets the fields that follow from the chunk, the cluster and the threads.
void complete(const Problem& p, Plan& plan);

// Returns the least number of threads: whole warps and whole rows, a multiple of 8 rows if vectors are swizzled.
int thread_step(const Plan& plan);

std::int64_t slab_bytes(const Plan& plan);

// Tuning parameters in which v09 and v10 differ.
struct TuningParameters {
  int least_even_cluster = 1;        // clusters from this size on grow until an SM has several blocks
  int least_pixels = 0;              // of a block, below which clusters do not grow for that
  int good_threads = 256;            // wanted on an SM
  int column_threads = kMaxThreads;  // a block has a warp for each column up to so many threads, even if fewer are good
};
Plan plan_of(const Problem& p, const TuningParameters& tuning);

// Returns null, or the reason why the problem has no plan.
const char* refusal(const Problem& p, const Plan& plan);

}  // namespace ladder::groupnorm::tensor_core

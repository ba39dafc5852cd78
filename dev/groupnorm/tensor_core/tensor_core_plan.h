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

// A block has some of the pixels of a chunk of channels.
struct TensorCorePlan {
  int channels = 0;               // channels per chunk; 0: no plan
  int groups = 0;                 // groups per chunk
  int channels_per_group = 0;     // the width of a group
  int row_vectors = 0;            // 16-byte vectors of a pixel in the chunk
  int swizzle_shift = 0;          // see swizzled()
  int log_cluster = 0;            // log2 of the blocks per cluster
  int pixels_per_block = 0;       // the last blocks of a cluster may have fewer
  int tiles_per_block = 0;        // of kTile pixels; the slab is zero after its pixels
  int threads = 0;                // threads per block: whole rows, a multiple of 8 of them where vectors are swizzled
  int column_parts = 0;           // parts of a column's tiles, so that every warp has the same work
  unsigned reciprocal_row = 0;    // of row_vectors; see divided()
  unsigned reciprocal_width = 0;  // of channels_per_group; see divided()
  float inverse_m = 0;            // 1 / elements of a group
  float max_mean_ratio = 0;       // of mean^2 over the variance; above it sums are taken about a pivot
};

// Returns a plan with chunks of `groups` groups, or nothing if such a chunk is no multiple of a vector.
std::optional<TensorCorePlan> chunk_of(const Problem& p, int groups);

// Sets the pixels and tiles of a block for clusters of 1 << log_cluster blocks.
void divide_pixels(const Problem& p, int log_cluster, TensorCorePlan& plan);

// Sets the fields that follow from the chunk, the cluster and the threads.
void complete(const Problem& p, TensorCorePlan& plan);

// Returns the least number of threads: whole warps and whole rows, a multiple of 8 rows if vectors are swizzled.
int thread_step(const TensorCorePlan& plan);

std::int64_t slab_bytes(const TensorCorePlan& plan);

// Tuning parameters in which v09 and v10 differ.
struct TuningParameters {
  int least_even_cluster = 1;        // clusters from this size on grow until an SM has several blocks
  int least_pixels = 0;              // of a block, below which clusters do not grow for that
  int good_threads = 256;            // wanted on an SM
  int column_threads = kMaxThreads;  // a block has a warp for each column up to so many threads, even if fewer are good
};
TensorCorePlan plan_of(const Problem& p, const TuningParameters& tuning);

// Returns null, or the reason why the problem has no plan.
const char* refusal(const Problem& p, const TensorCorePlan& plan);

}  // namespace ladder::groupnorm::tensor_core

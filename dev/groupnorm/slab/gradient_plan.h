// The plan of backward v06, which keeps x and dy of a slab in shared memory: an image's pixels of a chunk of channels, whole
// groups, in one block or split over the blocks of a cluster. gradient_plan.cpp chooses it.
//
// A thread has one column, a vector's channels, and every pixel_rows-th pixel. Groups need not align with vectors; a chunk
// aligns with both.
#pragma once

#include "core/ceil_div.h"
#include "dev/groupnorm/groupnorm.h"

namespace ladder::groupnorm {

struct GradientSlab {
  int chunk = 0;             // channels; 0: the problem has no slab
  int cluster = 1;           // blocks that share its pixels
  int columns = 0;           // 16-byte vectors of a pixel in the chunk
  int pixel_rows = 0;        // pixels that a block's threads take per step
  int pixels_per_block = 0;  // the last block may have fewer

  __host__ __device__ int active() const { return columns * pixel_rows; }  // threads with a column
  __host__ __device__ int steps() const { return ceil_div(pixels_per_block, pixel_rows); }
};

inline unsigned slab_threads(const GradientSlab& slab) {
  return static_cast<unsigned>(ceil_div(slab.active(), 32) * 32);
}
inline unsigned slab_blocks(const Problem& p, const GradientSlab& slab) {
  return static_cast<unsigned>(p.n) * (p.c / slab.chunk) * slab.cluster;
}

// Shared memory for the sums of a slab, in bytes: see SlabSums.
__host__ __device__ inline int slab_scratch(const GradientSlab& slab) {
  return ceil_div(slab.pixel_rows, 2) * slab.chunk / 2;
}
inline int slab_sums_bytes(const GradientSlab& slab) { return slab_scratch(slab) * 16 + slab.chunk * (3 * 8 + 16); }

// x and dy in shared memory.
inline constexpr int kSmemThreads = 256;
inline constexpr int kSmemBlocksPerSm = 2;

inline int slab_smem_bytes(const GradientSlab& slab) {
  return slab.steps() * slab.active() * 2 * 16 + slab_sums_bytes(slab);
}
GradientSlab plan_smem(const Problem& p);

}  // namespace ladder::groupnorm

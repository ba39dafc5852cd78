// Plans of v10, whose blocks have whole images: how images, their channels and pixels are shared out. image_plan.cpp chooses
// them.
#pragma once

#include "core/ceil_div.h"
#include "dev/groupnorm/groupnorm.h"

namespace ladder::groupnorm::whole_images {

inline constexpr int kMaxSteps = 8;
inline constexpr int kWarpWords = 32 * 4;  // sums of a warp's threads, of one kind, four channels each
inline constexpr int kMaxThreads = 384;

// Bytes of a warp's x that wait in shared memory, as eight quads of it and of dz would be too many registers.
__host__ __device__ constexpr int parked_bytes(int steps, int element_bytes) {
  return steps > 4 ? steps * kWarpWords * element_bytes : 0;
}

// A cluster has a chunk of channels of all images, a block some of these images, a thread every pixel_rows-th pixel of four
// channels of one of them. Reciprocals are precomputed, so that kernels need no division.
struct ImagePlan {
  int chunk = 0;                  // channels, whole groups; 0: there is no plan
  int channels_per_group = 0;     // the width of a group
  int cluster = 1;                // blocks per cluster
  int images_per_block = 0;       // the last block may have fewer
  int quads = 0;                  // quads of a pixel in the chunk
  int warps = 0;                  // warps per image
  int pixel_rows = 0;             // pixels that an image's threads take per step
  int steps = 0;                  // steps per image: 4 or 8
  unsigned reciprocal_quads = 0;  // 65536 / quads + 1
  unsigned reciprocal_width = 0;  // 65536 / channels_per_group + 1
  int warp_bytes = 0;             // shared memory per warp
  float inverse_m = 0;            // 1 / elements of a group

  __host__ __device__ int block_warps() const { return images_per_block * warps; }
  // Returns true if every thread has a pixel at each of its steps.
  bool full(const Problem& p) const {
    return pixel_rows * quads == warps * 32 && pixel_rows * steps == p.pixels() && images_per_block * cluster == p.n;
  }
};

// Shared memory: first what the blocks of a cluster send to its first one, an mbarrier and [cluster][2][chunk] sums; then what
// each warp has, `warp_bytes`.
inline constexpr int kSumsOffset = 16;  // so that vectors of the warps are aligned
__host__ __device__ inline int exchanged_bytes(const ImagePlan& plan) { return plan.cluster * 2 * plan.chunk * 4; }
__host__ __device__ inline int exchange_bytes(const ImagePlan& plan) { return kSumsOffset + exchanged_bytes(plan); }
inline int smem_bytes(const ImagePlan& plan) { return exchange_bytes(plan) + plan.block_warps() * plan.warp_bytes; }

ImagePlan plan_of(const Problem& p);

}  // namespace ladder::groupnorm::whole_images

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

// A cluster has a chunk of channels of all images, a block `each` of these, a thread every rows-th pixel of four channels of
// one of them. What a kernel would have to divide for is here.
struct Plan {
  int chunk = 0;  // channels, whole groups; 0: there is no plan
  int width = 0;  // channels of a group
  int cluster = 1;
  int each = 0;           // images of a block
  int quads = 0;          // of a pixel
  int warps = 0;          // of an image
  int rows = 0;           // pixels that an image's threads take at a time
  int steps = 0;          // times that they do: 4 or 8
  unsigned by_quads = 0;  // 65536 / quads, rounded up
  unsigned by_width = 0;  // 65536 / width, likewise
  int warp_bytes = 0;     // of shared memory, that a warp has
  float inverse_m = 0;

  __host__ __device__ int block_warps() const { return each * warps; }
  bool whole(const Problem& p) const {
    return rows * quads == warps * 32 && rows * steps == p.pixels() && each * cluster == p.n;
  }
};

// Shared memory: first what the blocks of a cluster send to its first one, an mbarrier and [cluster][2][chunk] sums; then what
// each warp has, `warp_bytes`.
inline constexpr int kSumsAt = 16;  // so that vectors of the warps are aligned
__host__ __device__ inline int exchanged_bytes(const Plan& plan) { return plan.cluster * 2 * plan.chunk * 4; }
__host__ __device__ inline int exchange_bytes(const Plan& plan) { return kSumsAt + exchanged_bytes(plan); }
inline int smem_bytes(const Plan& plan) { return exchange_bytes(plan) + plan.block_warps() * plan.warp_bytes; }

Plan plan_of(const Problem& p);

}  // namespace ladder::groupnorm::whole_images

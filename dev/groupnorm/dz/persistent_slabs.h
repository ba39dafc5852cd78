// Persistent clusters (v13 and v14): the order of a cluster's slabs, and a thread's copies of a slab.
#pragma once

#include "dev/groupnorm/dz/dz_slab.h"
#include "dev/ptx/cache_policy.h"

namespace ladder::groupnorm::resident_dz {

// Room for four blocks of 128 threads or three of 192. At 640 threads, five warps in each quarter of an SM, a thread
// has 96 registers.
inline constexpr int kPersistentThreadsPerSm = 640;

// Slabs of a cluster: the one of its index in the grid, then every clusters-th one. Quotients are precomputed, so that
// the kernel needs no division.
struct SlabSchedule {
  int slabs = 0;
  int chunks = 0;       // of an image
  int clusters = 0;     // of the grid, and the distance to a cluster's next slab, in slabs
  int images_step = 0;  // the same distance in images
  int chunks_step = 0;  // plus chunks
};

inline SlabSchedule schedule_of(const Problem& p, const DzPlan& plan, int resident_clusters) {
  const int chunks = p.c / plan.chunk;
  const int slabs = p.n * chunks;
  const int clusters = std::min(slabs, resident_clusters);
  return {.slabs = slabs,
          .chunks = chunks,
          .clusters = clusters,
          .images_step = clusters / chunks,
          .chunks_step = clusters % chunks};
}

// Moves `tile` to the cluster's next slab.
__device__ __forceinline__ void advance(const SlabSchedule& schedule, DzOffset& tile) {
  tile.image += schedule.images_step, tile.chunk += schedule.chunks_step;
  if (tile.chunk >= schedule.chunks) tile.chunk -= schedule.chunks, ++tile.image;
}

// Offset in [n, h, w, c] of the thread's first element.
__device__ __forceinline__ int first_element(const Problem& p, const DzPlan& plan, const DzOffset& tile) {
  return (tile.image * p.h * p.w + tile.first_pixel) * p.c + tile.chunk * plan.chunk + tile.column * kQuad;
}

// Copies of a slab by one thread: every other one of the vectors of x and dy that it shares with its neighbour, one for
// each pair of steps. Past the block's last pixel x repeats that pixel and dy is zero, so that the sums do not change.
// kSplit: x is two tensors.
template <class T, bool kSplit = false>
class Copies {
  using Layout = SlabLayout<T>;
  static_assert(Layout::kSharers == kStepsAtOnce);

 public:
  static constexpr int kPairBytes = kStepsAtOnce * Layout::kStepBytes;  // from a pair of steps to the next

  __device__ __forceinline__ Copies(const Problem& p, const DzPlan& plan, const DzOffset& tile)
      : offset_(tile.image * p.h * p.w * p.c + channel(plan, tile)),
        pixel_(tile.first_pixel + sharer(tile.lane_idx) * plan.pixel_rows) {
    if constexpr (kSplit) {
      const int c = channel(plan, tile);
      x_offset_ = c < p.split ? tile.image * p.h * p.w * p.split + c
                              : ~(tile.image * p.h * p.w * (p.c - p.split) + c - p.split);
    }
  }

  // Byte offset of the thread's first vector of x in the warp's slab.
  static __device__ __forceinline__ int offset_of(int lane_idx) {
    return sharer(lane_idx) * Layout::kStepBytes + lane_idx / Layout::kSharers * 16;
  }
  __device__ __forceinline__ void start(const Problem& p, const Backward::Tensors& t, const DzPlan& plan,
                                        const DzOffset& tile, unsigned char* to, ptx::CachePolicy policy) {
    const int pixel = min(pixel_, tile.end_pixel - 1);
    const int from = offset_ + pixel * p.c;
    const T* x = static_cast<const T*>(t.x) + from;
    if constexpr (kSplit) {
      x = x_offset_ >= 0 ? static_cast<const T*>(t.x) + (x_offset_ + pixel * p.split)
                         : static_cast<const T*>(t.x_rest) + (~x_offset_ + pixel * (p.c - p.split));
    }
    ptx::cp_async_16(to, x, true, policy);
    ptx::cp_async_16(to + Layout::kDz, static_cast<const T*>(t.dy) + from, pixel_ < tile.end_pixel, policy);
    pixel_ += kStepsAtOnce * plan.pixel_rows;
  }

 private:
  static __device__ __forceinline__ int sharer(int lane_idx) { return lane_idx % Layout::kSharers; }
  static __device__ __forceinline__ int channel(const DzPlan& plan, const DzOffset& tile) {
    return tile.chunk * plan.chunk + (tile.column - sharer(tile.lane_idx)) * kQuad;
  }

  int offset_;  // offset in [n, h, w, c] of the vector's column in the image's first pixel
  int pixel_;   // of the next copies
  // kSplit: the same offset in x or, complemented (~), in x_rest. NOTE: a pointer and a pitch take two more registers,
  // which spill.
  int x_offset_ = 0;
};

// Starts all of a slab's copies, in two cp.async groups.
template <class T, bool kSplit = false>
__device__ __forceinline__ void load_slab(const Problem& p, const Backward::Tensors& t, const DzPlan& plan,
                                          const DzOffset& tile, unsigned char* slab, ptx::CachePolicy policy) {
  using SlabCopies = Copies<T, kSplit>;
  SlabCopies copies(p, plan, tile);
  unsigned char* to = slab + SlabCopies::offset_of(tile.lane_idx);
  int steps_left = plan.first_steps;
#pragma unroll 1
  for (int group = 0; group < 2; ++group) {
#pragma unroll 4
    for (; steps_left > 0; steps_left -= kStepsAtOnce, to += SlabCopies::kPairBytes)
      copies.start(p, t, plan, tile, to, policy);
    ptx::cp_async_commit();
    steps_left = plan.steps - plan.first_steps;
  }
}

}  // namespace ladder::groupnorm::resident_dz

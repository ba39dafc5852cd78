// Clusters that persist (v13 and v14): which slabs a cluster takes, and a thread's copies of one.
#pragma once

#include "dev/groupnorm/dz_slab.h"
#include "dev/ptx/cache_policy.h"

namespace ladder::groupnorm::dz_kept {

// Four blocks of 128 threads or three of 192, and 96 registers for each thread of five warps in a quarter of an SM.
inline constexpr int kPersistentThreadsPerSm = 640;

// A cluster's slabs: that of its number in the grid, then every clusters-th one. What the kernel would have to divide for is here.
struct Rounds {
  int slabs = 0;
  int chunks = 0;     // of an image
  int clusters = 0;   // of the grid: a cluster's next slab is this many slabs on,
  int images_on = 0;  // or this many images
  int chunks_on = 0;  // and chunks
};

inline Rounds rounds_of(const Problem& p, const Plan& plan, int resident_clusters) {
  const int chunks = p.c / plan.chunk;
  const int slabs = p.n * chunks;
  const int clusters = std::min(slabs, resident_clusters);
  return {.slabs = slabs,
          .chunks = chunks,
          .clusters = clusters,
          .images_on = clusters / chunks,
          .chunks_on = clusters % chunks};
}

// To the place of the cluster's next slab.
__device__ __forceinline__ void advance(const Rounds& rounds, Place& place) {
  place.image += rounds.images_on, place.chunk += rounds.chunks_on;
  if (place.chunk >= rounds.chunks) place.chunk -= rounds.chunks, ++place.image;
}

// A thread's copies of a slab: of the vectors of x and dy that it shares with its neighbour, every other one, as many as there
// are pairs of steps. Past the block's last pixel x is that of the last one, and dy zero, so that it adds nothing. kSplit: x is
// two tensors.
template <class T, bool kSplit = false>
class Copies {
  using Layout = SlabLayout<T>;
  static_assert(Layout::kSharers == kStepsAtOnce);

 public:
  static constexpr int kPairBytes = kStepsAtOnce * Layout::kStepBytes;  // from two steps to the next two

  __device__ __forceinline__ Copies(const Problem& p, const Plan& plan, const Place& place)
      : at_(place.image * p.h * p.w * p.c + channel(plan, place)),
        pixel_(place.first + sharer(place.lane) * plan.rows) {
    if constexpr (kSplit) {
      const int c = channel(plan, place);
      x_at_ = c < p.split ? place.image * p.h * p.w * p.split + c
                          : ~(place.image * p.h * p.w * (p.c - p.split) + c - p.split);
    }
  }

  // Where the first one of x goes in the slab of a warp.
  static __device__ __forceinline__ int place_of(int lane) {
    return sharer(lane) * Layout::kStepBytes + lane / Layout::kSharers * 16;
  }
  __device__ __forceinline__ void start(const Problem& p, const Backward::Tensors& t, const Plan& plan,
                                        const Place& place, unsigned char* to, ptx::CachePolicy policy) {
    const int pixel = min(pixel_, place.end - 1);
    const int from = at_ + pixel * p.c;
    const T* x = static_cast<const T*>(t.x) + from;
    if constexpr (kSplit) {
      x = x_at_ >= 0 ? static_cast<const T*>(t.x) + (x_at_ + pixel * p.split)
                     : static_cast<const T*>(t.x_rest) + (~x_at_ + pixel * (p.c - p.split));
    }
    ptx::cp_async_16(to, x, true, policy);
    ptx::cp_async_16(to + Layout::kDz, static_cast<const T*>(t.dy) + from, pixel_ < place.end, policy);
    pixel_ += kStepsAtOnce * plan.rows;
  }

 private:
  static __device__ __forceinline__ int sharer(int lane) { return lane % Layout::kSharers; }
  static __device__ __forceinline__ int channel(const Plan& plan, const Place& place) {
    return place.chunk * plan.chunk + (place.column - sharer(place.lane)) * kQuad;
  }

  int at_;     // of the tensor, its column of the image's first pixel
  int pixel_;  // of the next ones
  // With kSplit, likewise of x or, as its complement, of x_rest. NOTE: a pointer and a pitch are two registers more, that spill.
  int x_at_ = 0;
};

// Starts all of a slab's copies, in two groups.
template <class T, bool kSplit = false>
__device__ __forceinline__ void load_slab(const Problem& p, const Backward::Tensors& t, const Plan& plan,
                                          const Place& place, unsigned char* slab, ptx::CachePolicy policy) {
  using SlabCopies = Copies<T, kSplit>;
  SlabCopies copies(p, plan, place);
  unsigned char* to = slab + SlabCopies::place_of(place.lane);
  int left = plan.half;
#pragma unroll 1
  for (int group = 0; group < 2; ++group) {
#pragma unroll 4
    for (; left > 0; left -= kStepsAtOnce, to += SlabCopies::kPairBytes) copies.start(p, t, plan, place, to, policy);
    ptx::cp_async_commit();
    left = plan.steps - plan.half;
  }
}

}  // namespace ladder::groupnorm::dz_kept

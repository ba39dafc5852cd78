// A slab's x and dy in shared memory, copied asynchronously, of v06. A thread reads back what it copied
// itself, so the slab needs no barrier.
#pragma once

#include "dev/groupnorm/gradient_slab.h"
#include "dev/ptx/cp_async.h"

namespace ladder::groupnorm {

template <class T>
struct SmemSlab {
  uint4* x;   // [steps][active]
  uint4* dy;  // likewise
  unsigned char* end;

  __device__ __forceinline__ SmemSlab(unsigned char* smem, const Slab& slab) {
    x = reinterpret_cast<uint4*>(smem);
    dy = x + slab.steps() * slab.active();
    end = reinterpret_cast<unsigned char*>(dy + slab.steps() * slab.active());
  }
};

// Calls f(slot, pixel) for each of a thread's vectors.
template <class T, class F>
__device__ __forceinline__ void for_vectors(const Slab& slab, const SlabPlace<T>& place, const F& f) {
  for (int pixel = place.begin, slot = threadIdx.x; pixel < place.end; pixel += slab.rows, slot += slab.active())
    f(slot, pixel);
}

// A thread begins to copy all of its vectors.
template <class T>
__device__ __forceinline__ void load_slab(const Problem& p, const Backward::Tensors& t, const Slab& slab,
                                          const SlabPlace<T>& place, const SmemSlab<T>& kept) {
  for_vectors(slab, place, [&](int slot, int pixel) {
    const int at = place.at(p, pixel);
    ptx::cp_async<16>(&kept.x[slot], static_cast<const T*>(t.x) + at, true);
    ptx::cp_async<16>(&kept.dy[slot], static_cast<const T*>(t.dy) + at, true);
  });
  ptx::cp_async_commit();
}

// A thread's sums of dz and dz * (x - mean), of each of its channels.
template <class Act, class T>
__device__ __forceinline__ void sum_slab(const Slab& slab, const SlabPlace<T>& place, const SmemSlab<T>& kept,
                                         const Channel (&channels)[kVector<T>], float2 (&sums)[kVector<T>]) {
  for_vectors(slab, place, [&](int slot, int) {
    float x[kVector<T>];
    float dy[kVector<T>];
    unpack<T>(kept.x[slot], x);
    unpack<T>(kept.dy[slot], dy);
#pragma unroll
    for (int i = 0; i < kVector<T>; ++i) add_terms<Act>(channels[i], x[i], dy[i], sums[i]);
  });
}

// A thread computes dz anew and writes dx.
template <class Act, class T>
__device__ __forceinline__ void write_slab(const Problem& p, const Backward::Tensors& t, const Slab& slab,
                                           const SlabPlace<T>& place, const SmemSlab<T>& kept,
                                           const Channel (&channels)[kVector<T>], const SlabSums<T>& smem) {
  Correction corrections[kVector<T>];
#pragma unroll
  for (int i = 0; i < kVector<T>; ++i) corrections[i] = smem.corrections[place.column * kVector<T> + i];
  for_vectors(slab, place, [&](int slot, int pixel) {
    float x[kVector<T>];
    float dy[kVector<T>];
    float dx[kVector<T>];
    unpack<T>(kept.x[slot], x);
    unpack<T>(kept.dy[slot], dy);
#pragma unroll
    for (int i = 0; i < kVector<T>; ++i) dx[i] = dx_of(channels[i], corrections[i], x[i], dy[i], Act{});
    *reinterpret_cast<uint4*>(static_cast<T*>(t.dx) + place.at(p, pixel)) = pack<T>(dx);
  });
}

}  // namespace ladder::groupnorm

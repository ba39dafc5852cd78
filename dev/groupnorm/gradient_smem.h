// A slab in the shared memory of a block or of a cluster's blocks: the kernel of v05, v06 and v08, but for how it is
// launched and what follows it.
//
// x and dy are copied asynchronously. A thread reads back what it copied itself, so the slab needs no barrier.
#pragma once

#include "dev/groupnorm/gradient_slab.h"
#include "dev/ptx/cluster.h"
#include "dev/ptx/cp_async.h"

namespace ladder::groupnorm {

inline constexpr int kSmemThreads = 256;
inline constexpr int kSmemBlocksPerSm = 2;

// `announce` is called once everything is on its way.
template <class T, class Act, bool kCluster, class Announce>
__device__ __forceinline__ void backward_in_smem(const Problem& p, const Backward::Tensors& t, const Slab& slab,
                                                 float2* rows, const Announce& announce) {
  LADDER_DYN_SMEM(raw);
  uint4* const xs = reinterpret_cast<uint4*>(raw);  // [steps][active]
  uint4* const dys = xs + slab.steps() * slab.active();
  const SlabSums<T> smem(reinterpret_cast<unsigned char*>(dys + slab.steps() * slab.active()), slab);
  const SlabPlace<T> place(p, slab);
  constexpr int kVec = kVector<T>;

  // Everything is on its way at once.
  int slot = threadIdx.x;
  for (int pixel = place.begin; pixel < place.end; pixel += slab.rows, slot += slab.active()) {
    const int at = place.at(p, pixel);
    ptx::cp_async<16>(&xs[slot], static_cast<const T*>(t.x) + at, true);
    ptx::cp_async<16>(&dys[slot], static_cast<const T*>(t.dy) + at, true);
  }
  ptx::cp_async_commit();
  announce();
  load_channels(p, t, slab, place, smem);
  __syncthreads();
  Channel channels[kVec];
#pragma unroll
  for (int i = 0; i < kVec; ++i) channels[i] = smem.channels[place.column * kVec + i];
  ptx::cp_async_wait<0>();

  float2 sums[kVec] = {};
  slot = threadIdx.x;
  for (int pixel = place.begin; pixel < place.end; pixel += slab.rows, slot += slab.active()) {
    float x[kVec];
    float dy[kVec];
    unpack<T>(xs[slot], x);
    unpack<T>(dys[slot], dy);
#pragma unroll
    for (int i = 0; i < kVec; ++i) add_terms<Act>(channels[i], x[i], dy[i], sums[i]);
  }
  sum_rows(slab, smem, sums);
  if constexpr (kCluster) {
    ptx::cluster_sync();
  } else {
    __syncthreads();
  }
  correct(p, t, slab, place, smem, !kCluster || place.rank == 0 ? rows : nullptr, [&](int i) {
    if constexpr (!kCluster) return smem.sums[i];
    float2 sum{0, 0};
    for (int rank = 0; rank < slab.cluster; ++rank) {
      const float2 part = ptx::ld_shared_cluster(ptx::mapa(smem.sums + i, rank));
      sum.x += part.x, sum.y += part.y;
    }
    return sum;
  });
  if constexpr (kCluster) ptx::cluster_arrive_relaxed();  // it has read the others' sums

  Correction corrections[kVec];
#pragma unroll
  for (int i = 0; i < kVec; ++i) corrections[i] = smem.corrections[place.column * kVec + i];
  slot = threadIdx.x;
  for (int pixel = place.begin; pixel < place.end; pixel += slab.rows, slot += slab.active()) {
    float x[kVec];
    float dy[kVec];
    float dx[kVec];
    unpack<T>(xs[slot], x);
    unpack<T>(dys[slot], dy);
#pragma unroll
    for (int i = 0; i < kVec; ++i) dx[i] = dx_of(channels[i], corrections[i], x[i], dy[i], Act{});
    *reinterpret_cast<uint4*>(static_cast<T*>(t.dx) + place.at(p, pixel)) = pack<T>(dx);
  }
  if constexpr (kCluster) ptx::cluster_wait();  // the others have read its sums: it may end
}

template <class T>
int slab_smem_bytes(const Slab& slab) {
  return slab.steps() * slab.active() * 2 * 16 + SlabSums<T>::bytes(slab);
}

template <class T>
Slab plan_smem(const Problem& p, int most_cluster) {
  return best_slab<T>(p, most_cluster, kSmemThreads,
                      [&](const Slab& slab) { return slab_ns(p, slab, slab_smem_bytes<T>(slab), kSmemBlocksPerSm); });
}

}  // namespace ladder::groupnorm

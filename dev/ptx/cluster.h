// Thread-block clusters and distributed shared memory, all of it (PTX ISA 9.7.13.4 barrier.cluster, 9.7.9.24 mapa, 9.7.9.8 ld,
// 9.7.9.11 st, 9.7.9.12 st.async, 9.7.13.5 atom, 10.12-10.18 special registers; sm_90 and later). LaunchConfig::cluster blocks
// run at the same time and can reach each other's shared memory.
#pragma once

#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/ld_shared_cluster.h"
#include "dev/ptx/st_async.h"
#include "dev/ptx/st_shared_cluster.h"

namespace ladder::ptx {

// This block's index in its cluster, x fastest (%cluster_ctarank).
__device__ __forceinline__ unsigned cluster_rank() {
#if defined(__CUDACC__)
  unsigned rank = 0;
  LADDER_SM90(rank = cuda::ptx::get_sreg_cluster_ctarank());
  return rank;
#else
  return simt::cluster_rank();
#endif
}

// Blocks in the cluster, 1 without one (%cluster_nctarank).
__device__ __forceinline__ unsigned cluster_size() {
#if defined(__CUDACC__)
  unsigned size = 0;
  LADDER_SM90(size = cuda::ptx::get_sreg_cluster_nctarank());
  return size;
#else
  return simt::cluster_size();
#endif
}

// Adds to a T of any block, relaxed, at the scope of the cluster; returns what was there before. T is int, unsigned or
// float; the order of float sums is anybody's guess.
template <class T>
__device__ __forceinline__ T atomic_add_shared_cluster(ClusterPointer<T> to,
                                                       std::type_identity_t<T> value LADDER_WHERE) {
  static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, float>);
#if defined(__CUDACC__)
  T old = 0;
  if constexpr (std::is_same_v<T, float>) {
    LADDER_SM90_ASM("atom.relaxed.cluster.shared::cluster.add.f32 %0, [%1], %2;"
                    : "=f"(old)
                    : "r"(to.address), "f"(value)
                    : "memory");
  } else {
    LADDER_SM90_ASM("atom.relaxed.cluster.shared::cluster.add.u32 %0, [%1], %2;"
                    : "=r"(old)
                    : "r"(to.address), "r"(value)
                    : "memory");
  }
  return old;
#else
  return simt::atomic_add_shared_cluster(to.address, value, where);
#endif
}

// Arrives at an mbarrier of any block of the cluster. Whoever waits there does so with mbarrier_wait_cluster().
__device__ __forceinline__ void mbarrier_arrive_cluster(ClusterPointer<Mbarrier> barrier LADDER_WHERE) {
#if defined(__CUDACC__)
  LADDER_SM90_ASM("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier.address) : "memory");
#else
  simt::mbarrier_arrive_cluster(barrier.address, where);
#endif
}

// The same without making anything visible: it says no more than that this thread's reads are over, so that what they read may
// be copied over. A wait at the scope of the block, mbarrier_wait(), then does: on an H200 copies to two blocks ran at 16 TB/s
// with it, at 6 with both at the scope of the cluster.
__device__ __forceinline__ void mbarrier_arrive_cluster_relaxed(ClusterPointer<Mbarrier> barrier LADDER_WHERE) {
#if defined(__CUDACC__)
  LADDER_SM90_ASM("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier.address) : "memory");
#else
  simt::mbarrier_arrive_cluster_relaxed(barrier.address, where);
#endif
}

}  // namespace ladder::ptx

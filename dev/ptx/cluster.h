// Thread-block clusters and distributed shared memory (PTX ISA 9.7.13.4 barrier.cluster, 9.7.9.24 mapa, 9.7.9.8 ld,
// 9.7.9.11 st, 9.7.9.12 st.async, 9.7.13.5 atom, 10.12-10.18 special registers; sm_90 and later).
//
// LaunchConfig::cluster blocks run at the same time and can reach each other's shared memory. A block's memory is there
// from its start to its end, so a kernel needs a cluster barrier before its first access to another block's memory and
// one after its last, besides those that order the data itself. Every thread of the cluster must take part in every
// barrier.
//
//     ptx::cluster_sync();                              // all blocks have started, and their stores are visible
//     float x = ptx::ld_shared_cluster(ptx::mapa(&part, rank));
//     ptx::cluster_sync();                              // all have read: each may overwrite its part, or end
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "dev/ptx/mbarrier.h"
#include "dev/ptx/sm90.h"
#include "dev/ptx/where.h"

#if defined(__CUDACC__)
#include <cuda/ptx>
#else
#include "core/simt/cluster.h"
#endif

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

// The cluster's barrier in two halves: what a thread did before it arrived, at the scope of the cluster, is visible to all
// threads that have waited. Between its halves a thread does what needs no order. It arrives once, then waits once.
__device__ __forceinline__ void cluster_arrive(LADDER_WHERE_ALONE) {
#if defined(__CUDACC__)
  LADDER_SM90(cuda::ptx::barrier_cluster_arrive(cuda::ptx::sem_release));
#else
  simt::cluster_arrive(where);
#endif
}

// Arrives without making anything visible, which spares a wait for all of the thread's stores: where the barrier is only
// to say that all blocks have started, or that all are done with each other's memory and may end.
__device__ __forceinline__ void cluster_arrive_relaxed(LADDER_WHERE_ALONE) {
#if defined(__CUDACC__)
  LADDER_SM90(cuda::ptx::barrier_cluster_arrive(cuda::ptx::sem_relaxed));
#else
  simt::cluster_arrive_relaxed(where);
#endif
}

__device__ __forceinline__ void cluster_wait(LADDER_WHERE_ALONE) {
#if defined(__CUDACC__)
  LADDER_SM90(cuda::ptx::barrier_cluster_wait(cuda::ptx::sem_acquire));
#else
  simt::cluster_wait(where);
#endif
}

__device__ __forceinline__ void cluster_sync(LADDER_WHERE_ALONE) {
#if defined(__CUDACC__)
  cluster_arrive();
  cluster_wait();
#else
  simt::cluster_arrive(where);
  simt::cluster_wait(where);
#endif
}

// A T in the shared memory of any block of the cluster. Not a C++ pointer: only the functions below take it.
template <class T>
struct ClusterPointer {
#if defined(__CUDACC__)
  std::uint32_t address;  // in the window .shared::cluster
#else
  T* address;
#endif

  __device__ __forceinline__ ClusterPointer operator+(int elements) const {
#if defined(__CUDACC__)
    return {address + elements * static_cast<std::uint32_t>(sizeof(T))};
#else
    return {address + elements};
#endif
  }
};

// Where block `rank` of the cluster has what the calling block has at `shared`, static or dynamic.
template <class T>
__device__ __forceinline__ ClusterPointer<T> mapa(T* shared, unsigned rank LADDER_WHERE) {
#if defined(__CUDACC__)
  const auto own = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  std::uint32_t address = 0;
  LADDER_SM90(asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(own), "r"(rank)));
  return {address};
#else
  return {static_cast<T*>(simt::detail::map_shared(shared, rank, where))};
#endif
}

// T has 4, 8 or 16 bytes, and the address is a multiple of them.
template <class T>
__device__ __forceinline__ std::remove_const_t<T> ld_shared_cluster(ClusterPointer<T> from LADDER_WHERE) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16));
  std::remove_const_t<T> value;
#if defined(__CUDACC__)
  std::uint32_t words[sizeof(T) / 4];
  if constexpr (sizeof(T) == 4) {
    LADDER_SM90_ASM("ld.shared::cluster.b32 %0, [%1];" : "=r"(words[0]) : "r"(from.address) : "memory");
  } else if constexpr (sizeof(T) == 8) {
    LADDER_SM90_ASM("ld.shared::cluster.v2.b32 {%0, %1}, [%2];"
                    : "=r"(words[0]), "=r"(words[1])
                    : "r"(from.address)
                    : "memory");
  } else {
    LADDER_SM90_ASM("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
                    : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                    : "r"(from.address)
                    : "memory");
  }
  memcpy(&value, words, sizeof(T));
#else
  simt::ld_shared_cluster(from.address, &value, sizeof(T), where);
#endif
  return value;
}

template <class T>
__device__ __forceinline__ void st_shared_cluster(ClusterPointer<T> to, std::type_identity_t<T> value LADDER_WHERE) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16));
#if defined(__CUDACC__)
  std::uint32_t words[sizeof(T) / 4];
  memcpy(words, &value, sizeof(T));
  if constexpr (sizeof(T) == 4) {
    LADDER_SM90_ASM("st.shared::cluster.b32 [%0], %1;" ::"r"(to.address), "r"(words[0]) : "memory");
  } else if constexpr (sizeof(T) == 8) {
    LADDER_SM90_ASM("st.shared::cluster.v2.b32 [%0], {%1, %2};" ::"r"(to.address), "r"(words[0]), "r"(words[1])
                    : "memory");
  } else {
    LADDER_SM90_ASM("st.shared::cluster.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to.address), "r"(words[0]), "r"(words[1]),
                    "r"(words[2]), "r"(words[3])
                    : "memory");
  }
#else
  simt::st_shared_cluster(to.address, &value, sizeof(T), where);
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

// Stores asynchronously, and then takes the bytes off those that `barrier` still expects in its phase: whoever waits for
// that sees the value, without a barrier that would have the sender wait for all it stored before. The mbarrier is one of
// the block that is stored to, which announces the bytes with mbarrier_arrive_expect_tx(), before or after they come, and
// does not end before it has them. T has 4, 8 or 16 bytes, and the address is a multiple of them. There are two blocks or
// more in the cluster: to one that is alone, an H200 says that the memory access was illegal.
template <class T>
__device__ __forceinline__ void st_async(ClusterPointer<T> to, std::type_identity_t<T> value,
                                         ClusterPointer<Mbarrier> barrier LADDER_WHERE) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16));
#if defined(__CUDACC__)
  std::uint32_t words[sizeof(T) / 4];
  memcpy(words, &value, sizeof(T));
  if constexpr (sizeof(T) == 4) {
    LADDER_SM90_ASM("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to.address),
                    "r"(words[0]), "r"(barrier.address)
                    : "memory");
  } else if constexpr (sizeof(T) == 8) {
    LADDER_SM90_ASM(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(to.address),
        "r"(words[0]), "r"(words[1]), "r"(barrier.address)
        : "memory");
  } else {
    LADDER_SM90_ASM(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to.address),
        "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(barrier.address)
        : "memory");
  }
#else
  simt::st_async(to.address, &value, sizeof(T), barrier.address, where);
#endif
}

// As mbarrier_wait(), on one of the calling block's own, and sees what the cluster's threads did before they arrived.
__device__ __forceinline__ void mbarrier_wait_cluster(Mbarrier* barrier, unsigned parity LADDER_WHERE) {
#if defined(__CUDACC__)
  LADDER_SM90(while (
      !cuda::ptx::mbarrier_try_wait_parity(cuda::ptx::sem_acquire, cuda::ptx::scope_cluster, barrier, parity)){});
#else
  simt::mbarrier_wait_cluster(barrier, parity, where);
#endif
}

}  // namespace ladder::ptx

// Stores into the shared memory of a cluster's blocks that complete on an mbarrier (PTX ISA 9.7.9.12 st.async; sm_90
// and later).
#pragma once

#include <cstring>
#include <type_traits>

#include "dev/ptx/cluster_pointer.h"
#include "dev/ptx/mbarrier.h"

#if defined(__CUDACC__)
#include <cuda/ptx>
#endif

namespace ladder::ptx {

// Store asynchronously, then subtract the bytes from those that `barrier` still expects in its phase. A thread that
// waits for the phase sees the value, without a barrier for which the sender would have to wait for all its earlier
// stores. The mbarrier belongs to the block that is stored to. This block announces the bytes with
// mbarrier_arrive_expect_tx(), before or after they come, and does not exit before it has them. T has 4, 8 or 16 bytes,
// and the address is a multiple of its size. The cluster has two blocks or more: with one block, an H200 reports an
// illegal memory access.
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

// mbarrier_wait() on a barrier of the calling block that also acquires, at cluster scope: later reads see what the
// cluster's threads did before they arrived.
__device__ __forceinline__ void mbarrier_wait_cluster(Mbarrier* barrier, unsigned parity LADDER_WHERE) {
#if defined(__CUDACC__)
  LADDER_SM90(while (
      !cuda::ptx::mbarrier_try_wait_parity(cuda::ptx::sem_acquire, cuda::ptx::scope_cluster, barrier, parity)){});
#else
  simt::mbarrier_wait_cluster(barrier, parity, where);
#endif
}

}  // namespace ladder::ptx

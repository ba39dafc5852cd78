// mbarrier: a barrier object in shared memory that counts arrivals and, for asynchronous copies, bytes (PTX ISA
// 9.7.13.15, here as sm_90 has it).
//
// A phase completes when the expected arrivals have come and all announced bytes have landed; then the next begins. A
// waiter names the phase by its parity: waiting for parity p returns once the phase of that parity has completed. A
// fresh barrier is in phase 0, so waiting for parity 1 returns at once.
#pragma once

#include <cstdint>

#include "dev/ptx/sm90.h"
#include "dev/ptx/where.h"

#if defined(__CUDACC__)
#include <cuda/ptx>
#else
#include "core/simt/mbarrier.h"
#endif

namespace ladder::ptx {

using Mbarrier = std::uint64_t;  // in shared memory, 8-byte aligned

// Initialise a barrier, by one thread, before any other use. mbarrier_fence_init() and a __syncthreads(), or a barrier
// of the cluster, make it visible.
__device__ __forceinline__ void mbarrier_init(Mbarrier* barrier, unsigned arrivals LADDER_WHERE) {
#if defined(__CUDACC__)
  LADDER_SM90(cuda::ptx::mbarrier_init(barrier, arrivals));
#else
  simt::mbarrier_init(barrier, arrivals, where);
#endif
}

// Orders the inits before the copy engine's use of the barriers, and before all that follows the next barrier of the
// cluster, which may be arrived at relaxed (PTX ISA 9.7.13.4 fence.mbarrier_init).
__device__ __forceinline__ void mbarrier_fence_init(LADDER_WHERE_ALONE) {
#if defined(__CUDACC__)
  LADDER_SM90(cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster));
#else
  simt::mbarrier_fence_init(where);
#endif
}

__device__ __forceinline__ void mbarrier_arrive(Mbarrier* barrier LADDER_WHERE) {
#if defined(__CUDACC__)
  LADDER_SM90(cuda::ptx::mbarrier_arrive(barrier));
#else
  simt::mbarrier_arrive(barrier, where);
#endif
}

// Arrives, and announces `bytes` of asynchronous copies that will complete on this barrier in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(Mbarrier* barrier, unsigned bytes LADDER_WHERE) {
#if defined(__CUDACC__)
  LADDER_SM90(cuda::ptx::mbarrier_arrive_expect_tx(cuda::ptx::sem_release, cuda::ptx::scope_cta,
                                                   cuda::ptx::space_shared, barrier, bytes));
#else
  simt::mbarrier_arrive_expect_tx(barrier, bytes, where);
#endif
}

// Waits until the phase of this parity has completed.
// NOTE: a loop over cuda::ptx::mbarrier_try_wait_parity() compiles into another kernel (a fifth fewer instructions in
// conv3x3/wgrad v07): the compiler unrolls around it otherwise. Measure before changing it.
__device__ __forceinline__ void mbarrier_wait(Mbarrier* barrier, unsigned parity LADDER_WHERE) {
#if defined(__CUDACC__)
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
  LADDER_SM90_ASM(
      "{\n"
      ".reg .pred done;\n"
      "wait_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra wait_%=;\n"
      "}\n" ::"r"(address),
      "r"(parity)
      : "memory");
#else
  simt::mbarrier_wait(barrier, parity, where);
#endif
}

}  // namespace ladder::ptx

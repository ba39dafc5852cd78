// The barrier of a thread-block cluster (PTX ISA 9.7.13.4 barrier.cluster; sm_90 and later). Every thread of the cluster must
// take part in every barrier.
#pragma once

#include "dev/ptx/sm90.h"
#include "dev/ptx/where.h"

#if defined(__CUDACC__)
#include <cuda/ptx>
#else
#include "core/simt/cluster.h"
#endif

namespace ladder::ptx {

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

}  // namespace ladder::ptx

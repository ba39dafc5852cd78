// A barrier of all blocks of a grid, for kernels launched with LaunchConfig::cooperative.
//
// Blocks count their arrivals in a word of global memory that must be 0 when the grid starts: set_bytes_async() of
// core/graph.h in front of the launch. What any thread of a block wrote before its block arrived is visible to all threads of
// all blocks after the wait, for ordinary loads; loads by TMA take a proxy fence besides.
#pragma once

#include "core/device.h"
#include "dev/ptx/where.h"

#if !defined(__CUDACC__)
#include "core/simt/grid_barrier.h"
#endif

namespace ladder::ptx {

// Every thread of every block of the grid (of one dimension) makes one and calls the same functions in the same order.
class GridBarrier {
 public:
  __device__ __forceinline__ explicit GridBarrier(unsigned* counter) : counter_(counter) {}

  // The first half: between the halves a thread does what needs no order, such as loading what no block writes.
  __device__ __forceinline__ void arrive(LADDER_WHERE_ALONE) {
    target_ += gridDim.x;
    __syncthreads();
    if (threadIdx.x != 0) return;
#if defined(__CUDACC__)
    // Cumulative: for what the block's other threads wrote before __syncthreads, too. __threadfence() is sequentially
    // consistent besides, which takes longer.
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(counter_) : "memory");
#else
    simt::grid_arrive(counter_, where);
#endif
  }

  __device__ __forceinline__ void wait(LADDER_WHERE_ALONE) {
    if (threadIdx.x == 0) {
#if defined(__CUDACC__)
      unsigned arrived = 0;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(arrived) : "l"(counter_) : "memory");
      } while (arrived < target_);
#else
      simt::grid_wait(counter_, target_, where);
#endif
    }
    __syncthreads();
  }

  __device__ __forceinline__ void sync(LADDER_WHERE_ALONE) {
#if defined(__CUDACC__)
    arrive();
    wait();
#else
    arrive(where);
    wait(where);
#endif
  }

 private:
  unsigned* counter_;
  unsigned target_ = 0;  // arrivals of all barriers up to the latest
};

}  // namespace ladder::ptx

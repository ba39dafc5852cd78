// TMA: the Tensor Memory Accelerator copies boxes of a tensor between global and shared memory (PTX ISA 9.7.9.27;
// sm_90 and later).
//
// A box that reaches over the tensor's edge reads as zero there and still counts in full on the barrier; coordinates may
// be negative. With the 128-byte swizzle, which all maps here have, the box's innermost dimension is at most 128 bytes,
// and the 16-byte run j of the 128-byte row at shared address a lies at run j ^ ((a >> 7) & 7): address bits 4-6 are
// XORed with bits 7-9, whatever the box's start.
#pragma once

#include "core/tensor_map.h"
#include "dev/ptx/mbarrier.h"

namespace ladder::ptx {

using ladder::make_tensor_map;
using ladder::TensorMap;

// Fetches a descriptor ahead of its first use. A kernel parameter is there before the kernel begins: prefetch before
// grid_dependency_wait(). The emulator reads the map, so that one in device memory is a fault there.
__device__ __forceinline__ void tma_prefetch(const TensorMap& map) {
#if defined(__CUDACC__)
  LADDER_SM90_ASM("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#else
  static_cast<void>(*reinterpret_cast<const volatile unsigned char*>(&map));
#endif
}

// NOTE: the innermost coordinate must be a multiple of 16 bytes; an H200 answers any other with an illegal instruction.
//
// Starts the copy of the box at the given coordinates (innermost first) into `shared` (128-byte aligned), whose bytes
// complete on `barrier`. By one thread.
__device__ __forceinline__ void tma_load(void* shared, const TensorMap& map, Mbarrier* barrier, int x0, int x1,
                                         int x2 LADDER_WHERE) {
#if defined(__CUDACC__)
  const int coordinates[] = {x0, x1, x2};
  LADDER_SM90(cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, shared, &map,
                                              coordinates, barrier));
#else
  simt::tma_load(shared, map, barrier, {x0, x1, x2}, where);
#endif
}

__device__ __forceinline__ void tma_load(void* shared, const TensorMap& map, Mbarrier* barrier, int x0, int x1, int x2,
                                         int x3 LADDER_WHERE) {
#if defined(__CUDACC__)
  const int coordinates[] = {x0, x1, x2, x3};
  LADDER_SM90(cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, shared, &map,
                                              coordinates, barrier));
#else
  simt::tma_load(shared, map, barrier, {x0, x1, x2, x3}, where);
#endif
}

// The same copy for several blocks of a cluster, read once: for each block whose rank is a bit of `blocks`, into what it has at
// `shared`, and its bytes complete on what it has at `barrier`, where that block announces them. All of them have initialised
// their barriers and are done with what `shared` held before; none ends before the bytes have come. Whoever waits need not
// acquire at the scope of the cluster.
__device__ __forceinline__ void tma_load_multicast(void* shared, const TensorMap& map, Mbarrier* barrier,
                                                   std::uint16_t blocks, int x0, int x1, int x2 LADDER_WHERE) {
#if defined(__CUDACC__)
  const int coordinates[] = {x0, x1, x2};
  LADDER_SM90(cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, shared, &map,
                                              coordinates, barrier, blocks));
#else
  simt::tma_load_multicast(shared, map, barrier, blocks, {x0, x1, x2}, where);
#endif
}

}  // namespace ladder::ptx

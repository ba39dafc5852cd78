// TMA: the Tensor Memory Accelerator copies boxes of a tensor between global and shared memory (PTX ISA 9.7.9.27,
// CUDA driver API section "Tensor Map Object Management", sm_90 and later).
//
// A box that reaches over the tensor's edge reads as zero there and still counts in full on the barrier; coordinates may
// be negative. With the 128-byte swizzle, which all maps here have, the box's innermost dimension is at most 128 bytes,
// and the 16-byte run j of the 128-byte row at shared address a lies at run j ^ ((a >> 7) & 7): address bits 4-6 are
// XORed with bits 7-9, whatever the box's start.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/dtype.h"
#include "dev/ptx/mbarrier.h"

#if defined(__CUDACC__)
#include <cuda.h>

#include "core/cuda_check.h"
#else
#include "core/simt/tma.h"
#endif

namespace ladder::ptx {

// Passed to kernels by value: `const __grid_constant__ TensorMap map`.
#if defined(__CUDACC__)
using TensorMap = CUtensorMap;
#else
using TensorMap = simt::TensorMap;
#endif

// A map of a dense tensor at `base` (16-byte aligned), innermost dimension first; every stride but the innermost must be a
// multiple of 16 bytes. `box` is what one copy fetches, 128-byte swizzled, zero outside the tensor. Throws Failure
// naming what the driver refuses. Host code.
#if defined(__CUDACC__)
inline TensorMap make_tensor_map(Dtype dtype, const void* base, std::initializer_list<std::uint64_t> dims,
                                 std::initializer_list<std::uint32_t> box) {
  // The driver's function by way of the runtime, so that programs start on machines without a driver.
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  LADDER_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
  LADDER_CHECK(found == cudaDriverEntryPointSuccess, "this driver has no tensor maps");
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);

  constexpr int kMaxDims = 5;
  const auto rank = static_cast<unsigned>(dims.size());
  cuuint64_t strides[kMaxDims] = {size_of(dtype)};
  for (unsigned i = 0; i + 1 < rank; ++i) strides[i + 1] = strides[i] * dims.begin()[i];
  const cuuint32_t steps[kMaxDims] = {1, 1, 1, 1, 1};
  const CUtensorMapDataType type = dtype == Dtype::bf16  ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                   : dtype == Dtype::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                         : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  TensorMap map{};
  const CUresult status = encode(&map, type, rank, const_cast<void*>(base), dims.begin(), strides + 1, box.begin(),
                                 steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  LADDER_CHECK(status == CUDA_SUCCESS, "cuTensorMapEncodeTiled refused the tensor, error " + std::to_string(status));
  return map;
}
#else
using simt::make_tensor_map;
#endif

// Fetches a descriptor ahead of its first use.
__device__ __forceinline__ void tma_prefetch(const TensorMap& map) {
#if defined(__CUDACC__)
  LADDER_SM90_ASM("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#else
  (void)map;
#endif
}

// NOTE: the innermost coordinate must be a multiple of 16 bytes; an H200 answers any other with an illegal instruction.
//
// Starts the copy of the box at the given coordinates (innermost first) into `shared` (128-byte aligned), whose bytes
// complete on `barrier`. By one thread.
__device__ __forceinline__ void tma_load(void* shared, const TensorMap& map, Mbarrier* barrier, int x0, int x1,
                                         int x2 LADDER_WHERE) {
#if defined(__CUDACC__)
  const int at[] = {x0, x1, x2};
  LADDER_SM90(
      cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, shared, &map, at, barrier));
#else
  simt::tma_load(shared, map, barrier, {x0, x1, x2}, where);
#endif
}

__device__ __forceinline__ void tma_load(void* shared, const TensorMap& map, Mbarrier* barrier, int x0, int x1, int x2,
                                         int x3 LADDER_WHERE) {
#if defined(__CUDACC__)
  const int at[] = {x0, x1, x2, x3};
  LADDER_SM90(
      cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, shared, &map, at, barrier));
#else
  simt::tma_load(shared, map, barrier, {x0, x1, x2, x3}, where);
#endif
}

}  // namespace ladder::ptx

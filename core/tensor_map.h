// Tensor maps, which tell the TMA (dev/ptx/tma.h) how a tensor lies in memory: host code (CUDA driver API section "Tensor Map
// Object Management").
#pragma once

#if defined(__CUDACC__)
#include <cuda.h>

#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/cuda_check.h"
#include "core/dtype.h"
#else
#include "core/simt/tma.h"
#endif

namespace ladder {

// Passed to kernels by value: `const __grid_constant__ TensorMap map`.
#if defined(__CUDACC__)
using TensorMap = CUtensorMap;
#else
using TensorMap = simt::TensorMap;
#endif

// A map of a dense tensor at `base` (16-byte aligned), innermost dimension first; every stride but the innermost must be a
// multiple of 16 bytes. `box` is what one copy fetches, 128-byte swizzled, zero outside the tensor. Throws Failure
// naming what the driver refuses.
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

}  // namespace ladder

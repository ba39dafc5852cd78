// CUDA's vocabulary for g++ and clang, as core/device.h includes it where nvcc is not the compiler.
//
// Number formats and vector types are NVIDIA's own headers, which parse under any C++ compiler; what those leave to
// nvcc's builtins is given a meaning here, on the emulator.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <cassert>

// Words whose meaning is to a GPU compiler alone.
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __cluster_dims__
#define __cluster_dims__(...)
#undef __maxnreg__
#define __maxnreg__(...)
#undef __grid_constant__
#define __grid_constant__

// A word whose meaning no macro can give: a local variable of one thread is what would come of it.
#undef __shared__
#define __shared__ _Pragma("GCC error \"use LADDER_SHARED(type, name, extents) or LADDER_DYN_SMEM(name)\"")

// PTX is for dev/ptx/, where each function has a meaning for the emulator beside it.
#define asm _Pragma("GCC error \"the emulator reads no PTX: write a function of dev/ptx/\"")

#include "core/simt/atomics.h"
#include "core/simt/intrinsics.h"
#include "core/simt/shared.h"
#include "core/simt/shuffle.h"
#include "core/simt/sync.h"
#include "core/simt/wmma.h"

// An assumption that is false is undefined on a GPU, and ends a kernel here.
#undef __builtin_assume
#define __builtin_assume(...) assert((__VA_ARGS__))

// Counts its calls: there are no cycles here.
inline long long clock64() {
  static thread_local long long count = 0;
  return ++count;
}

#define threadIdx (static_cast<const uint3&>(::ladder::simt::detail::current->thread_idx))
#define blockIdx (static_cast<const uint3&>(::ladder::simt::detail::current->block_idx))
#define blockDim (static_cast<const dim3&>(::ladder::simt::detail::current->block_dim))
#define gridDim (static_cast<const dim3&>(::ladder::simt::detail::current->grid_dim))

inline constexpr int warpSize = ladder::simt::detail::kWarpSize;

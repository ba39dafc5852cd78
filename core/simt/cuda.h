// CUDA's vocabulary for g++ and clang, as core/device.h includes it where nvcc is not the compiler.
//
// Number formats and vector types are NVIDIA's own headers, which parse under any C++ compiler; what those leave to
// nvcc's builtins is given a meaning here, on the emulator.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_functions.h>
#include <vector_types.h>

// Words whose meaning is to a GPU compiler alone.
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __cluster_dims__
#define __cluster_dims__(...)
#undef __maxnreg__
#define __maxnreg__(...)
#undef __grid_constant__
#define __grid_constant__

#include "core/simt/atomics.h"
#include "core/simt/intrinsics.h"
#include "core/simt/shared.h"
#include "core/simt/shuffle.h"
#include "core/simt/sync.h"
#include "core/simt/wmma.h"

#define threadIdx (static_cast<const uint3&>(::ladder::simt::detail::current->thread_idx))
#define blockIdx (static_cast<const uint3&>(::ladder::simt::detail::current->block_idx))
#define blockDim (static_cast<const dim3&>(::ladder::simt::detail::current->block_dim))
#define gridDim (static_cast<const dim3&>(::ladder::simt::detail::current->grid_dim))

inline constexpr int warpSize = ladder::simt::detail::kWarpSize;

// CUDA error checks: LADDER_CUDA throws Failure with file, line, the failing call's text and CUDA's own words.
#pragma once

#include <cuda_runtime_api.h>

#include "core/error.h"

#define LADDER_CUDA(call)                                                                            \
  do {                                                                                               \
    const cudaError_t ladder_status = (call);                                                        \
    if (ladder_status != cudaSuccess) {                                                              \
      (void)cudaGetLastError();                                                                      \
      ::ladder::throw_failure(__FILE__, __builtin_LINE(), #call, cudaGetErrorString(ladder_status)); \
    }                                                                                                \
  } while (false)

// Guards code that only Hopper's feature set has (sm_90a). Compiled for anything older such a function traps: the
// registry's min_arch keeps the kernel from running there, and the file still builds for every target.
#pragma once

#include "core/device.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define LADDER_SM90(...) __VA_ARGS__
#elif defined(__CUDACC__)
#define LADDER_SM90(...) __trap()
#endif
#define LADDER_SM90_ASM(...) LADDER_SM90(asm volatile(__VA_ARGS__))

// Prefetch of memory into the L2 ahead of its loads (PTX ISA 9.7.9.25.4.3 cp.async.bulk.prefetch; sm_90 and later).
//
// The prefetch fills lines of the L2 and nothing else. All stores go through the L2, so that later loads see what is
// stored there later: a prefetch may run before grid_dependency_wait(), whoever writes the memory.
#pragma once

#include "dev/ptx/sm90.h"

namespace ladder::ptx {

// Prefetch, by one thread. Address and bytes are multiples of 16. The emulator has no caches.
__device__ __forceinline__ void prefetch_l2([[maybe_unused]] const void* from, [[maybe_unused]] unsigned bytes) {
#if defined(__CUDACC__)
  LADDER_SM90_ASM("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

}  // namespace ladder::ptx

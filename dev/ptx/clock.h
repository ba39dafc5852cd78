// The clock of an SM (PTX ISA 10.27 %clock): a counter that wraps around.
#pragma once

#include "core/device.h"

namespace ladder::ptx {

// Returns after so many clocks of the SM or a few more. The emulator has no time: there it returns at once.
__device__ __forceinline__ void wait_clocks([[maybe_unused]] unsigned clocks) {
#if defined(__CUDACC__)
  const auto clock = [] {
    unsigned now = 0;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
    return now;
  };
  const unsigned start = clock();
  while (clock() - start < clocks) {
  }
#endif
}

}  // namespace ladder::ptx

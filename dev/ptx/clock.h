// The clock of an SM (PTX ISA 10.27 %clock): a counter that wraps around.
#pragma once

#include "core/device.h"

namespace ladder::ptx {

// Returns after at least this many clocks of the SM. The emulator has no time: there it returns at once.
__device__ __forceinline__ void wait_clocks([[maybe_unused]] unsigned clocks) {
#if defined(__CUDACC__)
  const auto start = static_cast<unsigned>(clock());
  while (static_cast<unsigned>(clock()) - start < clocks) {
  }
#endif
}

}  // namespace ladder::ptx

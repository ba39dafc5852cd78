// Programmatic dependent launch (PTX ISA 9.7.13.13 griddepcontrol; sm_90 and later): a grid launched with
// LaunchConfig::overlaps_previous is set up, and may start, while the one in front of it still runs.
//
// What the first grid writes is visible after the wait, not before: the wait is for the whole grid to end, however early
// its blocks announced. It also orders the second grid after everything before the first one.
//
//     first:  ptx::grid_dependency_launch();  // in every block, or when it ends
//     second: ptx::grid_dependency_wait();    // in every thread, before it touches what the first reads or writes
//
// On the emulator a launch runs to its end before the next one begins: both are no more than their place in the source.
#pragma once

#include "dev/ptx/sm90.h"

namespace ladder::ptx {

// The next grid may start once all blocks of this one have said so: none of them is waiting for an SM any more.
__device__ __forceinline__ void grid_dependency_launch() {
#if defined(__CUDACC__)
  LADDER_SM90_ASM("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Until the grids in front have ended and their stores are visible. Returns at once in a grid that does not overlap.
__device__ __forceinline__ void grid_dependency_wait() {
#if defined(__CUDACC__)
  LADDER_SM90_ASM("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace ladder::ptx

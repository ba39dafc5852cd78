// Programmatic dependent launch (PTX ISA 9.7.13.13 griddepcontrol; sm_90 and later): a grid launched with
// LaunchConfig::overlaps_previous is set up, and may start, while the one in front of it still runs.
//
// The rule for every kernel that is launched so, whatever runs in front of it:
// - A thread touches no global memory before ptx::grid_dependency_wait(): no load, weights included (the kernel in front may
//   be the one that wrote them), no store, no atomic, no cp.async, no TMA. A thread that touches none need not wait, but some
//   thread of the grid does. Before the wait: index arithmetic, mbarriers, cluster barriers, clearing shared memory.
// - Each block says ptx::grid_dependency_launch() after its wait, where its last loads have been issued: the next grid's
//   blocks take the room that is left on the SMs, and wait there.
// The wait is for the whole grid in front to end, however early its blocks announced, and orders this one after everything
// before that as well. The emulator ends a kernel that breaks the rule (docs/emulator.md).
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

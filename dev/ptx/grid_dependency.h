// Programmatic dependent launch (PTX ISA 9.7.13.13 griddepcontrol; sm_90 and later): a grid launched with
// LaunchConfig::overlaps_previous is set up, and may start, while the one in front of it still runs.
//
// The rule for every kernel that is launched so, whatever runs in front of it:
// - A thread touches no global memory before ptx::grid_dependency_wait(): no load, no store, no atomic, no cp.async, no TMA. A
//   thread that touches none need not wait, but some thread of the grid does. Before the wait: index arithmetic, mbarriers,
//   cluster barriers, clearing shared memory, setmaxnreg, ptx::tma_prefetch() of a map that is a kernel parameter, and TMA
//   loads of weights of which loads_early() said, when the kernel was bound, that no grid in flight
//   writes them (core/early_tensors.h): it is a parameter of the kernel.
// - Each block says ptx::grid_dependency_launch() after its wait, where its last loads have been issued: the next grid's
//   blocks take the room that is left on the SMs, and wait there. A grid that takes ready flags may say so earlier (below).
// On devices before sm_90 nothing overlaps, and both are empty.
// The wait is for the whole grid in front to end, however early its blocks announced, and orders this one after everything
// before that as well. The emulator ends a kernel that breaks the rule (docs/emulator.md).
#pragma once

#include "core/device.h"
#include "dev/ptx/where.h"

#if !defined(__CUDACC__)
#include "core/simt/grid_dependency.h"
#endif

namespace ladder::ptx {

// The next grid may start once all blocks of this one have said so: none of them is waiting for an SM any more.
__device__ __forceinline__ void grid_dependency_launch(LADDER_WHERE_ALONE) {
#if !defined(__CUDACC__)
  simt::grid_dependency_launch(where);
#elif __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Until the grids in front have ended and their stores are visible. Returns at once in a grid that does not overlap.
__device__ __forceinline__ void grid_dependency_wait(LADDER_WHERE_ALONE) {
#if !defined(__CUDACC__)
  simt::grid_dependency_wait(where);
#elif __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// grid_dependency_wait() once `index`, which is not negative, has been computed. NOTE: ptxas sinks index arithmetic below a
// plain wait, to its first use: three divisions, 115 instructions of one thread, between the end of the grid in front and the
// first load. The branch keeps it above. A loop may call it every time: after the first it returns at once.
__device__ __forceinline__ void grid_dependency_wait_after([[maybe_unused]] int index LADDER_WHERE) {
#if !defined(__CUDACC__)
  simt::grid_dependency_wait(where);
#else
  if (index < 0) __trap();
  grid_dependency_wait();
#endif
}

// An exception to the rule: from here the thread takes what the grid in front announces by ready flags in memory, element by
// element, and waits at its end. The grid in front says grid_dependency_launch() after its own wait, and sets them later.
//
// After this call, and before its wait, the thread may say grid_dependency_launch(). This grid starts when all blocks of the
// grid in front are on an SM or have ended, and the next one when all blocks of this grid are: no block that sets or takes a
// flag waits for an SM that the next grid holds. The next grid's wait ends after this grid, hence after the grid in front.
// The next grid takes no flags itself: it would touch memory that the grid in front may still use.
__device__ __forceinline__ void grid_dependency_flags(LADDER_WHERE_ALONE) {
#if !defined(__CUDACC__)
  simt::grid_dependency_flags(where);
#endif
}

}  // namespace ladder::ptx

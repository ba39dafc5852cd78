// The emulated branch of dev/ptx/grid_barrier.h. The blocks of a cooperative grid, at most as many as the emulated card has
// SMs, run together as those of a cluster do, interleaved by the schedule.
#pragma once

#include "core/simt/runtime.h"

namespace ladder::simt {

// One thread of a block says that the block has arrived. Throws Fault if the grid is not cooperative, or if the counter does
// not hold the number of blocks that have arrived so far.
void grid_arrive(unsigned* counter, Where where);

// Until `target` blocks have arrived, those of earlier barriers included.
void grid_wait(const unsigned* counter, unsigned target, Where where);

}  // namespace ladder::simt

// The emulated branch of dev/ptx/grid_dependency.h. Launches run one after the other; that a kernel waits before it touches
// global memory is checked all the same, in two clusters of every launch with overlaps_previous: the buffers' pages are
// closed to threads that did not wait. For the order of threads the wait is real there: nobody passes it while another
// thread of the cluster can still do something else.
//
// A thread lets the next grid start after its wait, or after grid_dependency_flags(). In the second case the grid has not
// waited, so the next grid on the stream must wait: grid_dependency_flags() is a fault there.
#pragma once

#include "core/simt/runtime.h"

namespace ladder::simt {

void grid_dependency_wait(Where where);
void grid_dependency_launch(Where where);
void grid_dependency_flags(Where where);

}  // namespace ladder::simt

// The emulated branch of dev/ptx/grid_dependency.h. Launches run one after the other; that a kernel waits before it touches
// global memory is checked all the same, in two clusters of every launch with overlaps_previous: the buffers' pages are
// closed to threads that did not wait. For the order of threads the wait is real there: nobody passes it while another
// thread of the cluster can still do something else.
#pragma once

#include "core/simt/runtime.h"

namespace ladder::simt {

void grid_dependency_wait(Where where);
void grid_dependency_launch(Where where);
void grid_dependency_flags(Where where);

}  // namespace ladder::simt

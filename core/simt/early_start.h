// Streams whose latest grid let the next one start before it waited for the grid in front, which a grid that takes ready flags
// may do (dev/ptx/grid_dependency.h).
#pragma once

#include <functional>

#include "core/stream.h"

namespace ladder::simt {

// Run `work`, whose launches are on `stream`.
void run_on(Stream stream, const std::function<void()>& work);

// Returns true if the latest grid on the stream in use let the next one start early.
bool started_early();
// Note the same of the grid that has ended.
void note_early_start(bool early);

}  // namespace ladder::simt

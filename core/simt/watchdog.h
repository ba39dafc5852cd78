// Ends kernels that loop for ever, naming the line: a CUDA thread that runs for long without ever reaching a barrier, a
// shuffle or any other place where the emulator could run another thread, or a block that runs for far longer still.
#pragma once

namespace ladder::simt {

inline constexpr const char* kWatchdogVariable = "LADDER_WATCHDOG_SECONDS";

// Watches the kernels that the calling OS thread runs from now on, after catch_bad_accesses(). The limit for a thread is
// LADDER_WATCHDOG_SECONDS of processor time, 10 by default, and for a block six times that; 0 watches nothing.
void watch_this_thread();

}  // namespace ladder::simt

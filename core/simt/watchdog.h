// Ends kernels that loop for ever. A CUDA thread that runs for long without ever reaching a barrier, a shuffle or any other
// place where the emulator could run another thread is taken to be in such a loop: its kernel ends with a Fault that names
// the line it was at.
#pragma once

namespace ladder::simt {

// Watches the kernels that the calling OS thread runs from now on. The limit is LADDER_WATCHDOG_SECONDS of processor time,
// 20 by default; 0 watches nothing.
void watch_this_thread();

}  // namespace ladder::simt

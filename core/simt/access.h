// Faults of bad accesses. A kernel's access to memory that is not there, or not aligned, ends with a Fault that names
// line, thread, block and the nearest tensor or shared array; so does a failed assert(), without the tensor.
// AddressSanitizer has reports of its own for accesses.
#pragma once

#include <string>

namespace ladder::simt {

// Install the handlers for the calling OS thread, which is about to run kernels.
void catch_bad_accesses();

// End the running thread, and with it the kernel, with the fault `what`. Never returns, so that nothing its callers hold
// is destroyed.
[[noreturn]] void end_thread(const std::string& what);

}  // namespace ladder::simt

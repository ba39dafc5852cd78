// Faults of bad accesses. A kernel's access to memory that is not there, or not aligned, ends with a Fault that names
// line, thread, block and the nearest tensor or shared array; so does a failed assert(), without the tensor.
// AddressSanitizer and ThreadSanitizer have reports of their own for accesses.
#pragma once

namespace ladder::simt {

// Install the handlers for the calling OS thread, which is about to run kernels.
void catch_bad_accesses();

}  // namespace ladder::simt

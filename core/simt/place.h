// Source line of a kernel's machine instruction.
#pragma once

#include <string>
#include <string_view>

namespace ladder::simt {

// Returns the source line of the instruction at `at`: "dev/silu/forward/v01_naive.cu:23". It is the innermost frame of
// the call stack, from `at` outwards, that belongs neither to the emulator nor to the system; a signal handler gets the
// interrupted stack's. If the line is in a header, the kernel's line comes first:
// "dev/silu/forward/v02_vector_loads.cu:27: in dev/common/wide.h:23". The result is the function's name, or the
// address, if no line is known. `innermost`, "dev/common/wide.h:23:5", is the innermost place if the compiler has told
// it; `at` is then the return address after it.
std::string place_of(const void* at, const std::string& innermost = {});

// Returns true if `path`, in the source folder or relative to it, belongs neither to the emulator nor to the system.
bool is_kernels_own(std::string_view path);

// `path` without the source folder in front of it.
std::string relative_path(const std::string& path);

}  // namespace ladder::simt

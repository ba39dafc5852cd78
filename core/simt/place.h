// Where in a kernel's source a machine instruction comes from.
#pragma once

#include <string>
#include <string_view>

namespace ladder::simt {

// "dev/silu/forward/v01_naive.cu:23": the first place that is neither the emulator's nor the system's, of the call stack's
// frames from the instruction at `at` outwards; from a signal handler, of what it interrupted. The function's name, or the
// address, where no line is known.
std::string place_of(const void* at);

// Of a path in the source folder, or one relative to it: it is neither the emulator's nor the system's.
bool is_kernels_own(std::string_view path);

// `path` without the source folder in front of it.
std::string relative_path(const std::string& path);

}  // namespace ladder::simt

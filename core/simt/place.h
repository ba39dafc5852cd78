// Where in a kernel's source a machine instruction comes from.
#pragma once

#include <string>
#include <string_view>

namespace ladder::simt {

// "dev/silu/forward/v01_naive.cu:23": of the call stack's frames from the instruction at `at` outwards, the first place that
// is neither the emulator's nor the system's; from a signal handler, of what it interrupted. Where that is a header's, the
// kernel's comes first: "dev/silu/forward/v02_vector_loads.cu:27: in dev/common/wide.h:23". The function's name, or the
// address, where no line is known. With `innermost`, "dev/common/wide.h:23:5" as a compiler has told it, `at` is the address
// after that place's call.
std::string place_of(const void* at, const std::string& innermost = {});

// Of a path in the source folder, or one relative to it: it is neither the emulator's nor the system's.
bool is_kernels_own(std::string_view path);

// `path` without the source folder in front of it.
std::string relative_path(const std::string& path);

}  // namespace ladder::simt

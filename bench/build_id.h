// Which binary this is.
#pragma once

#include <string>

namespace ladder {

// The GNU build id of the running program in hexadecimal, a hash of its contents that the linker wrote into it (ELF note
// NT_GNU_BUILD_ID); empty if it was linked without.
std::string build_id();

}  // namespace ladder

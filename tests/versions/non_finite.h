// Versions on inputs that are not finite: a diverged network must look like one.
#pragma once

#include <cstdint>
#include <string>

#include "core/registry.h"

namespace ladder::test {

// Runs the version with a NaN, then an infinity, in the middle of each floating-point input. Empty, or where an output that
// depends on that input is finite though the reference's is not.
std::string hidden_non_finite(const Version& v, const Case& c, std::uint64_t seed);

}  // namespace ladder::test

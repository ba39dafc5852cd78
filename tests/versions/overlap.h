// Versions whose kernels start before the one in front has ended (LaunchConfig::overlaps_previous).
#pragma once

#include <cstdint>
#include <string>

#include "core/registry.h"

namespace ladder::test {

// Captures the version on the problem without running it: how many of its launches wait until the one in front has ended.
std::int64_t serial_launches(const Version& v, const Case& c);

// On a GPU: launches the version at once after a kernel that lets it start, spins for 50 us and only then writes its inputs,
// over NaNs. Empty, or where its bits differ from those of a launch that does not overlap.
std::string difference_behind_slow_writer(const Version& v, const Case& c, std::uint64_t seed);

}  // namespace ladder::test

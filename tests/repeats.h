// Whether a version gives the same bits again and again; and inputs on which a check can tell, where the first cannot.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/check/check.h"

namespace ladder::test {

// Whether a sanitizer makes every launch several times as slow.
#if defined(LADDER_ASAN) || defined(LADDER_TSAN)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// The orders of running threads that a test tries: the backend's, or those that LADDER_TEST_SCHEDULES lists ("asc,desc").
std::vector<std::string> schedules();

// Under some seeds a sum is so small, or a row so even, that what no version computed would pass: the verdict from the first seed
// of a few that can tell, beginning with that of `c`, which gets it.
Verdict trusted_verdict(std::optional<CheckedCase>& c, const std::function<Verdict(CheckedCase&)>& judge);

// Launches the version on one set of inputs under each of schedules(), at least twice, and 50 times on a GPU, with outputs and
// workspace poisoned before each launch. Empty, or which launch gave other bits than the first. Bounds on errors
// cannot see that: sums in another order, as of float atomics, are as right as each other.
std::string difference_between_launches(const Version& v, const Case& c, std::uint64_t seed);

// Captures the default plan into a graph and replays it twice: empty, or where its bits differ from those of a launch.
std::string difference_between_replays(const Version& v, const Case& c, std::uint64_t seed);

}  // namespace ladder::test

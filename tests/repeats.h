// Reproducibility of a version, bit for bit; and a choice of inputs on which a check can tell right from wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/check/check.h"

namespace ladder::test {

// True in a build with AddressSanitizer or preset order, where every launch takes several times as long.
#if defined(LADDER_ASAN) || defined(LADDER_ORDER)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Schedules (orders of running threads) that a test tries: the backend's, or those of LADDER_TEST_SCHEDULES
// ("asc,desc").
std::vector<std::string> schedules();

// Returns the verdict of the first of a few seeds that can tell right from wrong, starting with the seed of `c`, and
// leaves that seed's case in `c`. Under some seeds a sum is so small, or a row so even, that an answer that no version
// computed would pass.
Verdict trusted_verdict(std::optional<CheckedCase>& c, const std::function<Verdict(CheckedCase&)>& judge);

// Launch the version on one set of inputs under each of schedules(), at least twice, and 50 times on a GPU, with
// outputs and workspace poisoned before each launch. Returns the launch with other bits than the first, or empty. Error
// bounds cannot detect this: sums in another order, as with float atomics, are all within the bound.
std::string difference_between_launches(const Version& v, const Case& c, std::uint64_t seed);

// Capture the default plan into a graph and replay it twice. Returns the difference from a launch's bits, or empty.
std::string difference_between_replays(const Version& v, const Case& c, std::uint64_t seed);

}  // namespace ladder::test

// Shared helpers of the test programs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace ladder::test {

// True in a build that checks the order of accesses (preset order).
#if defined(LADDER_ORDER)
inline constexpr bool kChecksOrder = true;
#else
inline constexpr bool kChecksOrder = false;
#endif

// Run `registrar` after the flags are parsed and before any test. Programs register tests made from data there.
bool at_start(std::function<void()> registrar);

// Seed of this run's random tests: the environment's LADDER_SEED, else new in each run. Printed on first use.
std::uint64_t seed();

// Shell command that runs the current test again, with the same seed.
std::string rerun_command();

// Functions for main().
void set_program(const char* path);
void register_tests();

}  // namespace ladder::test

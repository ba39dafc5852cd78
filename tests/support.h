// What test programs share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace ladder::test {

// Runs `registrar` once flags are parsed, before any test: where a program registers tests made from data.
bool at_start(std::function<void()> registrar);

// The seed of this run's random tests: the environment's LADDER_SEED, else a new one each run. Printed on first use.
std::uint64_t seed();

// The shell command that runs exactly the current test again, with the same seed.
std::string rerun_command();

// For main().
void set_program(const char* path);
void register_tests();

}  // namespace ladder::test

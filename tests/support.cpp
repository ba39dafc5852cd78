#include "tests/support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <vector>

#include "core/error.h"

namespace ladder::test {
namespace {

std::string program;

std::vector<std::function<void()>>& registrars() {
  static std::vector<std::function<void()>> instance;
  return instance;
}

std::uint64_t choose_seed() {
  std::uint64_t value = std::random_device{}();
  if (const char* given = std::getenv("LADDER_SEED")) {
    char* end = nullptr;
    value = std::strtoull(given, &end, 10);
    if (end == given || *end) throw UsageError(fmt::format("LADDER_SEED='{}' is not a whole number", given));
  }
  fmt::print("seed {} (set LADDER_SEED to repeat it)\n", value);
  return value;
}

}  // namespace

bool at_start(std::function<void()> registrar) {
  registrars().push_back(std::move(registrar));
  return true;
}

std::uint64_t seed() {
  static const std::uint64_t value = choose_seed();
  return value;
}

std::string rerun_command() {
  const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
  return fmt::format("LADDER_SEED={} {} --gtest_filter='{}.{}'", seed(), program, info->test_suite_name(),
                     info->name());
}

void set_program(const char* path) { program = path; }

void register_tests() {
  for (const auto& registrar : registrars()) registrar();
}

}  // namespace ladder::test

// Shared helpers of the policy tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/backend.h"
#include "core/registry.h"
#include "dev/policy/policy.h"

namespace ladder::denoise::test {

class NeedsDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  }
};

// Limit for the difference of fp32 actions from float64. Rounding changes a prediction by about u sqrt(stages terms),
// with u = 2^-24, some 30 stages in sequence and sums of up to 1280 terms: 1.2e-5 for numbers of size 1.
inline constexpr double kFp32Limit = 2e-5;

// First number of versions that tests register.
inline constexpr int kFirstMadeUp = 90;

// Kinds of a denoising step, in the words of --use: "off" for the network's operations, or a version of policy/step.
inline std::vector<std::string> kinds_of_steps() {
  std::vector<std::string> words = {"off"};
  for (const Version* version : versions_of(pass_of<policy::Step>())) {
    if (version->number < kFirstMadeUp) words.push_back(version->label());
  }
  return words;
}

// Flatten nested lists to their numbers, row by row.
inline std::vector<double> flat(const nlohmann::json& value) {
  if (!value.is_array()) return {value.get<double>()};
  std::vector<double> all;
  for (const nlohmann::json& element : value) {
    const std::vector<double> some = flat(element);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

// Largest difference of two sequences; infinite for NaN or different lengths.
template <class A, class B>
double farthest(const A& a, const B& b) {
  if (a.size() != b.size() || a.empty()) return INFINITY;
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double distance = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(distance <= most)) most = std::isnan(distance) ? INFINITY : distance;
  }
  return most;
}

}  // namespace ladder::denoise::test

// What tests of policies share.
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

// The project's bar for fp32 actions beside float64's. Of a prediction, roundings make about u sqrt(stages terms), with
// u = 2^-24, some 30 stages one after the other and sums of up to 1280 terms: 1.2e-5 of numbers of size 1.
inline constexpr double kFp32Limit = 2e-5;

// Versions that tests register have numbers from this one on.
inline constexpr int kFirstMadeUp = 90;

// What a step may be made of, in the words of --use: the network's operations, or a version of policy/step.
inline std::vector<std::string> kinds_of_steps() {
  std::vector<std::string> words = {"off"};
  for (const Version* version : versions_of(pass_of<policy::Step>())) {
    if (version->number < kFirstMadeUp) words.push_back(version->label());
  }
  return words;
}

// The numbers of nested lists, row by row.
inline std::vector<double> flat(const nlohmann::json& value) {
  if (!value.is_array()) return {value.get<double>()};
  std::vector<double> all;
  for (const nlohmann::json& each : value) {
    const std::vector<double> some = flat(each);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

// Written so that NaN counts as far, and another number of values too.
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

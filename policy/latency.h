// Latency of a policy's answers, from an observation in host memory to actions in host memory.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace ladder::denoise {

struct Latency {
  std::vector<double> answers_ms;  // in the order of measurement
  std::vector<double> empty_ms;    // baseline: a graph that only fills four bytes, with the same copies
};

// Measures `count` calls of `answer`, and as many replays of an empty graph whose copies have `bytes_in` and
// `bytes_out` bytes, an answer's sizes.
Latency measure_latency(int count, const std::function<void()>& answer, std::size_t bytes_in, std::size_t bytes_out);

// Returns "median 12.3 ms, p99 12.9, worst 14.1".
std::string summary(std::vector<double> ms);

// Writes a record of schema ladder.policy_latency/1; `policy` describes the measured policy.
void write_latency(const std::filesystem::path& file, const nlohmann::json& policy, const Latency& latency);

}  // namespace ladder::denoise

// Latency of a policy's answers, from an observation in host memory to actions in host memory.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace ladder::denoise {

struct Latency {
  std::vector<double> answers_ms;  // in the order of measurement
  std::vector<double> empty_ms;    // after each answer: a graph that only fills four bytes, with the same copies
};

struct LatencyOptions {
  int count = 1000;     // answers
  double every_ms = 0;  // from an answer's begin to the next one's, as a controller asks; 0: back to back
};

// Measures calls of `answer`, and after each of them a replay of an empty graph whose copies have `bytes_in` and `bytes_out`
// bytes, an answer's sizes: what is slow in both is the host or the driver. Asked every so often, an answer begins with idle
// clocks.
Latency measure_latency(const LatencyOptions& options, const std::function<void()>& answer, std::size_t bytes_in,
                        std::size_t bytes_out);

// Returns "median 12.3 ms, p99 12.9, worst 14.1".
std::string summary(std::vector<double> ms);

// Writes a record of schema ladder.policy_latency/1; `policy` describes the measured policy.
void write_latency(const std::filesystem::path& file, const nlohmann::json& policy, const Latency& latency);

}  // namespace ladder::denoise

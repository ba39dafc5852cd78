// How long answers take, from an observation in the host's memory to actions there.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace ladder::denoise {

struct Latency {
  std::vector<double> answers_ms;  // in the order in which they were made
  std::vector<double> empty_ms;    // of a graph with nothing in it but a fill of four bytes, with the same copies
};

// Of `count` answers. `answer` makes one; an answer's copies have so many bytes.
Latency measure_latency(int count, const std::function<void()>& answer, std::size_t bytes_in, std::size_t bytes_out);

// "median 12.3 ms, p99 12.9, worst 14.1"
std::string summary(std::vector<double> ms);

// Writes the record, schema ladder.policy_latency/1, of which `policy` says what answered.
void write_latency(const std::filesystem::path& file, const nlohmann::json& policy, const Latency& latency);

}  // namespace ladder::denoise

#include "bench/record.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "bench/build_id.h"
#include "bench/roofline.h"
#include "build_info.h"
#include "core/backend.h"
#include "core/error.h"

namespace ladder {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

json to_json(const Sample& s) {
  return {{"seconds", s.seconds},
          {"stamp_seconds", s.stamp_seconds},
          {"wall_seconds", s.wall_seconds},
          {"sm_clock_hz", s.sm_clock_hz}};
}

// Samples as columns: shorter, and what a plot wants. Rounded to what the clocks can tell: 0.1 ns and 1 kHz. A worker's
// timer has neither clock nor stamps.
json columns(const std::vector<Sample>& samples) {
  std::vector<json> seconds, stamps, walls, clocks;
  for (const Sample& s : samples) {
    const auto if_known = [&](double figure) { return s.sm_clock_hz > 0 ? json(figure) : json(); };
    seconds.push_back(std::round(1e10 * s.seconds) / 1e10);
    stamps.push_back(if_known(std::round(1e10 * s.stamp_seconds) / 1e10));
    walls.push_back(if_known(std::round(1e10 * s.wall_seconds) / 1e10));
    clocks.push_back(if_known(1e3 * std::round(1e-3 * s.sm_clock_hz)));
  }
  return {{"seconds", seconds}, {"stamp_seconds", stamps}, {"wall_seconds", walls}, {"sm_clock_hz", clocks}};
}

json to_json(const std::optional<Times>& times) {
  if (!times) return nullptr;
  const MedianInterval& cold = times->cold_seconds;
  return {
      {"cold_seconds", {{"median", cold.median}, {"low", cold.low}, {"high", cold.high}, {"coverage", cold.coverage}}},
      {"warm_seconds", times->warm.empty() ? json() : json(times->warm_seconds)},
      {"throttled_samples", times->throttled},
      {"cold_samples", columns(times->cold)},
      {"warm_samples", columns(times->warm)}};
}

json to_json(const Verdict& verdict) {
  json errors = json::array();
  for (const std::optional<double>& error : verdict.errors) errors.push_back(error ? json(*error) : json());
  return {{"status", name(verdict.status)},
          {"reason", verdict.reason},
          {"error", verdict.error},
          {"errors", errors},
          {"worst_over_bound", verdict.worst},
          {"unwritten", verdict.unwritten}};
}

json to_json(const BaselinePlan& plan) {
  return {{"library", plan.library}, {"name", plan.name}, {"seconds", plan.seconds}, {"reason", plan.reason}};
}

json to_json(const BaselineResult& baseline) {
  if (baseline.library.empty()) return {{"library", nullptr}, {"reason", baseline.reason}};
  json tried = json::array();
  for (const BaselinePlan& plan : baseline.tried) tried.push_back(to_json(plan));
  return {{"library", baseline.library},
          {"reason", baseline.reason},
          {"search", name(baseline.searched)},
          {"best_plan", baseline.best.name},
          {"best_library", baseline.best.library},
          {"heuristic_plan", baseline.heuristic.name},
          {"heuristic_library", baseline.heuristic.library},
          {"tried_plans", tried},
          {"workspace_bytes", baseline.workspace_bytes},
          {"empty_seconds", baseline.empty_seconds > 0 ? json(baseline.empty_seconds) : json()},
          {"verdict", to_json(baseline.verdict)},
          {"times", to_json(baseline.times)},
          {"heuristic_times", to_json(baseline.heuristic_times)}};
}

json to_json(const std::optional<StreamingTime>& streaming) {
  if (!streaming) return nullptr;
  std::vector<double> samples;
  for (const double seconds : streaming->samples) samples.push_back(std::round(1e10 * seconds) / 1e10);
  return {{"seconds", streaming->seconds}, {"samples", samples}};
}

}  // namespace

json environment() {
  json device = {{"kind", backend::kind() == backend::Kind::gpu ? "gpu" : "emulator"}};
  if (!backend::unavailable()) {
    const backend::DeviceInfo& info = backend::device();
    device["name"] = info.name;
    device["slug"] = info.slug;
    device["arch"] = info.arch;
    device["num_sms"] = info.num_sms;
    device["max_sm_clock_hz"] = 1e3 * info.sm_clock_khz;
    device["l2_bytes"] = info.l2_bytes;
    device["dram_bytes_per_s"] = info.dram_bytes_per_s;
    device["uuid"] = info.uuid;
    device["driver"] = info.driver;
    device["runtime"] = info.runtime;
  }
  return {{"device", device},
          {"host", host_name()},
          {"commit", build_info::kCommit},
          {"dirty", build_info::kDirty},
          {"binary", build_id()},
          {"build", build_info::kBuild},
          {"compiler", build_info::kCompiler},
          {"flags", build_info::kFlags}};
}

json to_json(const Calibration& calibration) {
  json spins = json::array();
  for (const Calibration::Spin& spin : calibration.spins) {
    spins.push_back({{"expected_seconds", spin.expected_seconds}, {"seconds", spin.seconds}});
  }
  return {{"spins", spins},
          {"empty", to_json(calibration.empty)},
          {"copy_bytes_per_s", calibration.copy_bytes_per_s},
          {"max_sm_clock_hz", calibration.sm_clock_hz},
          {"failure", calibration.failure}};
}

json to_json(const Result& result) {
  const Case& c = result.problem;
  json out = {{"layer", c.pass->layer},
              {"pass", c.pass->name},
              {"version", result.version->number},
              {"idea", result.version->idea},
              {"problem", c.text},
              {"dtype", name(c.dtype)},
              {"flops", c.flops},
              {"min_read_bytes", c.traffic.read_bytes},
              {"min_write_bytes", c.traffic.write_bytes},
              {"plan", result.plan},
              {"workspace_bytes", result.workspace_bytes},
              {"verdict", to_json(result.verdict)},
              {"times", to_json(result.times)},
              {"baseline", to_json(result.baseline)},
              {"streaming", to_json(result.streaming)},
              {"digest", result.digest},
              {"command", result.command},
              {"seconds_spent", std::round(1e3 * result.seconds_spent) / 1e3}};
  if (!backend::unavailable()) out["roofline_seconds"] = roofline_seconds(backend::device(), c);
  return out;
}

std::string record_text(const json& record) {
  std::string text = "{";
  for (const auto& [key, value] : record.items()) {
    text += fmt::format("{}\n{}: ", text.size() > 1 ? "," : "", json(key).dump());
    if (key != "results") {
      text += value.dump();
      continue;
    }
    text += '[';
    for (const json& result : value) text += (text.back() == '[' ? "\n" : ",\n") + result.dump();
    text += ']';
  }
  return text + "\n}\n";
}

void require_writable(const std::string& flag, const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_regular_file(path, error)) {
    throw UsageError(fmt::format("{} '{}' is no regular file: name one to be written", flag, path));
  }
  const std::string probe = fmt::format("{}.{}.partial", path, ::getpid());
  std::ofstream file(probe);
  if (!file) {
    throw UsageError(fmt::format("{} '{}' cannot be written ({}): its folder must exist and be writable", flag, path,
                                 std::strerror(errno)));
  }
  file.close();
  fs::remove(probe, error);
}

}  // namespace ladder

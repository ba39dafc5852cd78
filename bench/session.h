// A run of the harness: every version is checked, then timed in turn with the baseline on the same inputs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/kept_plans.h"
#include "bench/statistics.h"
#include "bench/timer.h"
#include "core/check/check.h"
#include "core/registry.h"
#include "reference/baseline.h"

namespace ladder {

struct Times {
  std::vector<Sample> cold;
  std::vector<Sample> warm;
  MedianInterval cold_seconds;
  double warm_seconds = 0;
  int throttled = 0;  // cold samples whose SM clock was under 75 % of the highest seen; kept
};

// Result of the baseline on one case. Times are from samples taken in turn with one version.
struct BaselineResult {
  std::string library;                // "PyTorch 2.11.0, cuDNN 9.19.0"; empty if there is none
  std::string reason;                 // why there is no baseline, or which other libraries are missing and why
  Searched searched = Searched::all;  // origin of the best plan
  BaselinePlan best;
  BaselinePlan heuristic;
  std::vector<BaselinePlan> tried;
  std::size_t workspace_bytes = 0;
  double empty_seconds = 0;              // of an empty kernel by the best plan's own timer; 0 if that is ours
  Verdict verdict;                       // on the best plan's outputs, see judged()
  std::optional<Times> times;            // of the best plan
  std::optional<Times> heuristic_times;  // of the plan that an untuned user gets
};

// Time of moving a case's bytes and doing nothing else.
struct StreamingTime {
  double seconds = 0;  // the median
  std::vector<double> samples;
};

struct Result {
  const Version* version = nullptr;
  Case problem;
  Verdict verdict;
  std::optional<Times> times;
  std::string plan;                 // the version's plan that was timed; empty if it has only one
  std::size_t workspace_bytes = 0;  // of the version
  BaselineResult baseline;
  std::optional<StreamingTime> streaming;  // cold; for cases that memory limits
  std::string digest;        // of the outputs of the first timed launch: equal for equal kernels, inputs and devices
  std::string command;       // reproduces this result
  double seconds_spent = 0;  // on the whole result
};

struct SessionOptions {
  std::uint64_t seed = 0;
  bool checked = true;  // else nothing is compared, and nothing passes
  bool timed = true;    // else only checked
  int samples = 30;
  // Share by which every cold sample of a version is made longer, by a kernel that spins after the version's own; 0
  // spins for no time. Unchecked sessions only.
  std::optional<double> injected_slowdown = {};
  BaselineSearch search;
};

class Session {
 public:
  explicit Session(const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Check and time a version. Never throws for faults of a version or baseline, which the verdict reports.
  Result run(const Version& v, const Case& c);

  const Calibration* calibration() const;  // null in a session that is not timed

 private:
  struct CurrentCase;
  CurrentCase& current_case(const Case& c);
  void run_checked(const Version& v, const Case& c, Result& result);
  void run_unchecked(const Version& v, const Case& c, Result& result);
  Work slowed(const Work& work);
  std::optional<StreamingTime> time_streaming_kernel(const Case& c, const HostTensors& inputs);
  Sample cold(Baseline& baseline, Choice choice);
  void time(const Version& v, CurrentCase& current, Result& result);

  SessionOptions options_;
  std::unique_ptr<Timer> timer_;
  std::unique_ptr<CurrentCase> current_;  // the latest case
};

}  // namespace ladder

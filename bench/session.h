// One run of the harness: every version is checked, then timed in turn with the baseline on the same inputs.
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

// The baseline on one case. Times are those of the samples taken in turn with one version.
struct BaselineResult {
  std::string library;                // "PyTorch 2.11.0, cuDNN 9.19.0"; empty if there is none
  std::string reason;                 // why there is none, or beside one, which libraries are missing and why
  Searched searched = Searched::all;  // where the best plan comes from
  Plan best;
  Plan heuristic;
  std::vector<Plan> tried;
  std::size_t workspace_bytes = 0;
  double empty_seconds = 0;              // an empty kernel by the best plan's own timer; 0 where it is ours
  Verdict verdict;                       // of the best plan's outputs, as judged() has it
  std::optional<Times> times;            // of the best plan
  std::optional<Times> heuristic_times;  // of the plan an untuned user gets
};

// What it takes to move a case's bytes and do nothing else.
struct StreamingTime {
  double seconds = 0;  // the median
  std::vector<double> samples;
};

struct Result {
  const Version* version = nullptr;
  Case problem;
  Verdict verdict;
  std::optional<Times> times;
  std::string plan;                 // of the version, that was timed; empty where it has but one
  std::size_t workspace_bytes = 0;  // that it asked for
  BaselineResult baseline;
  std::optional<StreamingTime> streaming;  // cold; of cases that memory limits
  std::string digest;        // of the outputs of the first timed launch: equal for equal kernels, inputs and devices
  std::string command;       // reproduces this result
  double seconds_spent = 0;  // on all of this
};

struct SessionOptions {
  std::uint64_t seed = 0;
  bool checked = true;  // else nothing is compared with anything, and nothing passes
  bool timed = true;    // else only checked
  int samples = 30;
  // Not to be checked: every cold sample of a version is made to last this share longer by a spinning kernel after its own,
  // which at 0 spins for no time.
  std::optional<double> injected_slowdown = {};
  BaselineSearch search;
};

class Session {
 public:
  explicit Session(const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Never throws for what a version or a baseline does wrong: that is the verdict's business.
  Result run(const Version& v, const Case& c);

  const Calibration* calibration() const;  // null in a session that is not timed

 private:
  struct AtCase;
  AtCase& at(const Case& c);
  void run_checked(const Version& v, const Case& c, Result& result);
  void run_unchecked(const Version& v, const Case& c, Result& result);
  Work slowed(const Work& work);
  std::optional<StreamingTime> time_streaming_kernel(const Case& c, const HostTensors& inputs);
  Sample cold(Baseline& baseline, Choice choice);
  void time(const Version& v, AtCase& at, Result& result);

  SessionOptions options_;
  std::unique_ptr<Timer> timer_;
  std::unique_ptr<AtCase> at_;  // the latest case
};

}  // namespace ladder

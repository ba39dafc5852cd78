// The table that a person reads, one row per result, printed as results come in.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/causes.h"
#include "bench/options.h"
#include "bench/session.h"
#include "core/backend.h"

namespace ladder {

class Table {
 public:
  // Print the head. `copy_bytes_per_s` is the rate of the run's own device copy; none if nothing is timed, and the
  // columns of times are then left out. `flags` are those that repeat a result, with its version and problem.
  Table(const std::vector<Job>& jobs, std::optional<double> copy_bytes_per_s, std::string flags = {});

  // Print a row. A failure with a new cause is reported in full, another one by the number of its cause.
  void print(const Result& result);

  const Causes& causes() const { return causes_; }

 private:
  void print_baseline(const Result& result);
  void print_failure(const Result& result);

  bool timed_;
  double copy_bytes_per_s_;
  std::string flags_;
  Causes causes_;
  int version_width_ = 7;
  int problem_width_ = 7;
  std::string baseline_problem_;   // latest problem with a row for its baseline
  std::set<std::string> reasons_;  // printed reasons for a missing baseline
};

// Rates of a case, in units of what limits it. "-" if a rate is unknown or says nothing.
struct Rates {
  std::string tflops;             // arithmetic, unless memory is the limit
  std::string gbs;                // for every input and every output once
  std::string copy_percent;       // gbs in per cent of a device copy, if memory is the limit
  std::string streaming_percent;  // streaming_seconds in per cent of `seconds`, likewise
};
// Rates of a case that took `seconds`. 0 for a figure that was not measured.
Rates rates(const backend::DeviceInfo& device, const Case& c, double seconds, double copy_bytes_per_s,
            double streaming_seconds);

// Plans that were tried, the fastest first: "PyTorch compile nhwc 40.10, PyTorch eager nhwc 80.20 us". Empty if there
// are too many for a line.
std::string standings(const std::vector<BaselinePlan>& tried);

// Origin of the best plan: "best of 90", "best of an earlier search" or "heuristic; --baseline all searches".
std::string origin_of_best(const BaselineResult& baseline);

// Progress, `seconds` after the first job began: "3 of 7 problems, about 12 s left: <name of jobs[index]>". The
// estimate assumes problems as long as the ones before; there is none before the first result.
std::string progress_line(const std::vector<Job>& jobs, std::size_t index, double seconds);

// Counts of results: "12 passed, 1 failed, 3 skipped, 0 untrusted; baseline: 2 failed". The baseline's count is of
// problems.
std::string tally(const std::vector<Result>& results);

}  // namespace ladder

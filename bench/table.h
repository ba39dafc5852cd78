// The table a person reads, a row a result as they come in.
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
  // Prints its head. `copy_bytes_per_s` is what the run's own device copy moved; none where nothing is timed, and then no
  // column of times has a place. `flags` are those that repeat a result, with its version and problem.
  Table(const std::vector<Job>& jobs, std::optional<double> copy_bytes_per_s, std::string flags = {});

  // A failure is told in full where its cause is new, else by the cause's number.
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
  std::string baseline_problem_;   // whose baseline has its row already
  std::set<std::string> reasons_;  // for which there was no baseline, as printed
};

// How fast a case was done in `seconds`, in the unit of what limits it. "-" where something is unknown or says nothing.
struct Rates {
  std::string tflops;              // of arithmetic, unless memory is the limit
  std::string gbs;                 // every input and every output once
  std::string share_of_copy;       // those as per cent of a device copy, if memory is the limit
  std::string share_of_streaming;  // the time that moving those takes alone as per cent of `seconds`, likewise
};
// 0 for what was not measured.
Rates rates(const backend::DeviceInfo& device, const Case& c, double seconds, double copy_bytes_per_s,
            double streaming_seconds);

// What was tried, the fastest first: "PyTorch compile nhwc 40.10, PyTorch eager nhwc 80.20 us". Empty where there
// are too many for a line.
std::string standings(const std::vector<Plan>& tried);

// "best of 90", "best of an earlier search" or "heuristic; --baseline all searches".
std::string origin_of_best(const BaselineResult& baseline);

// "3 of 7 problems, about 12 s left: <name of jobs[index]>", `seconds` after the first job began. Problems are as long as
// the ones before; nothing is estimated before the first result.
std::string progress_line(const std::vector<Job>& jobs, std::size_t index, double seconds);

// "12 passed, 1 failed, 3 skipped, 0 untrusted; baseline: 2 failed", the latter of problems.
std::string tally(const std::vector<Result>& results);

}  // namespace ladder

// The table a person reads, printed by Google Benchmark as results come in.
#pragma once

#include <benchmark/benchmark.h>

#include <set>
#include <string>
#include <vector>

#include "bench/options.h"
#include "bench/session.h"
#include "core/backend.h"

namespace ladder {

class TableReporter : public benchmark::BenchmarkReporter {
 public:
  // `results` grows while the benchmarks run; rows are printed as it does. `copy_bytes_per_s` is what the run's own
  // device copy moved; 0 if unknown.
  TableReporter(const std::vector<Job>& jobs, const std::vector<Result>& results, double copy_bytes_per_s);

  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;

 private:
  void print(const Result& result);
  void print_baseline(const Result& result);

  const std::vector<Result>& results_;
  double copy_bytes_per_s_;
  std::size_t printed_ = 0;
  int version_width_ = 7;
  int problem_width_ = 7;
  std::string baseline_problem_;   // whose baseline has its row already
  std::set<std::string> reasons_;  // for which there was no baseline, as printed
};

// How fast a case was done in `seconds`, in the unit of what limits it. "-" where something is unknown or says nothing.
struct Rates {
  std::string tflops;         // of arithmetic, unless memory is the limit
  std::string gbs;            // every input and every output once
  std::string share_of_copy;  // those as per cent of a device copy, if memory is the limit
  std::string share_of_streaming;  // the time that moving those takes alone as per cent of `seconds`, likewise
};
// 0 for what was not measured.
Rates rates(const backend::DeviceInfo& device, const Case& c, double seconds, double copy_bytes_per_s,
            double streaming_seconds);

// What was tried, the fastest first: "PyTorch compile nhwc 40.10, PyTorch eager nhwc 80.20 us". Empty where there
// are too many for a line.
std::string standings(const std::vector<Plan>& tried);

// "12 passed, 1 failed, 3 skipped, 0 untrusted"
std::string tally(const std::vector<Result>& results);

}  // namespace ladder

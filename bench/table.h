// The table a person reads, printed by Google Benchmark as results come in.
#pragma once

#include <benchmark/benchmark.h>

#include <set>
#include <string>
#include <vector>

#include "bench/options.h"
#include "bench/session.h"

namespace ladder {

class TableReporter : public benchmark::BenchmarkReporter {
 public:
  // `results` grows while the benchmarks run; rows are printed as it does.
  TableReporter(const std::vector<Job>& jobs, const std::vector<Result>& results);

  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;

 private:
  void print(const Result& result);
  void print_opponent(const Result& result);

  const std::vector<Result>& results_;
  std::size_t printed_ = 0;
  int version_width_ = 7;
  int problem_width_ = 7;
  std::string opponent_problem_;   // whose opponent has its row already
  std::set<std::string> reasons_;  // for which there was no opponent, as printed
};

// "12 passed, 1 failed, 3 skipped, 0 untrusted"
std::string tally(const std::vector<Result>& results);

}  // namespace ladder

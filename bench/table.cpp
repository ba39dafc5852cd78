#include "bench/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <iterator>

#include "bench/roofline.h"
#include "core/backend.h"
#include "core/paths.h"

namespace ladder {
namespace {

std::string microseconds(double seconds) {
  const double us = 1e6 * seconds;
  return us < 99.95 ? fmt::format("{:.2f}", us) : us < 9999.5 ? fmt::format("{:.1f}", us) : fmt::format("{:.0f}", us);
}

struct Row {
  std::string version, problem, cold, interval, warm, tflops, gbs, copy, move, roofline, baseline, heuristic, error,
      status;
};

void print_row(const Row& row, int version_width, int problem_width, bool timed) {
  const std::string times =
      timed ? fmt::format("{:>8} {:>17} {:>8} {:>8} {:>7} {:>6} {:>6} {:>6} {:>7} {:>7} ", row.cold, row.interval,
                          row.warm, row.tflops, row.gbs, row.copy, row.move, row.roofline, row.baseline, row.heuristic)
            : "";
  std::cout << fmt::format("{:<{}}  {:<{}}  {}{:>9}  {}\n", row.version, version_width, row.problem, problem_width,
                           times, row.error, row.status)
            << std::flush;
}

// "-" wherever there is no time.
Row row_of(const Case& c, const std::optional<Times>& times, const Verdict& verdict, double copy_bytes_per_s,
           const std::optional<StreamingTime>& streaming) {
  Row row{"", c.text, "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", name(verdict.status)};
  if (verdict.status != Status::skip && verdict.status != Status::unchecked) {
    row.error = fmt::format("{:.2e}", verdict.error);
  }
  if (!verdict.reason.empty()) row.status += ": " + verdict.reason;
  if (!times) return row;
  const MedianInterval& cold = times->cold_seconds;
  row.cold = microseconds(cold.median);
  row.interval = fmt::format("[{}, {}]", microseconds(cold.low), microseconds(cold.high));
  if (!times->warm.empty()) row.warm = microseconds(times->warm_seconds);
  const Rates rates =
      ladder::rates(backend::device(), c, cold.median, copy_bytes_per_s, streaming ? streaming->seconds : 0);
  row.tflops = rates.tflops;
  row.gbs = rates.gbs;
  row.copy = rates.copy_percent;
  row.move = rates.streaming_percent;
  const double roofline = roofline_seconds(backend::device(), c);
  if (roofline > 0) row.roofline = fmt::format("{:.1f}", 100 * roofline / cold.median);
  if (times->throttled > 0) {
    row.status += fmt::format(" (clock low in {} of {} samples)", times->throttled, times->cold.size());
  }
  return row;
}

std::string ratio(const std::optional<Times>& baseline, const Times& times) {
  if (!baseline || baseline->cold.empty()) return "-";
  return fmt::format("{:.2f}", baseline->cold_seconds.median / times.cold_seconds.median);
}

}  // namespace

Rates rates(const backend::DeviceInfo& device, const Case& c, double seconds, double copy_bytes_per_s,
            double streaming_seconds) {
  const double bytes_per_s = c.traffic.bytes() / seconds;
  Rates rates{.tflops = fmt::format("{:.2f}", 1e-12 * c.flops / seconds),
              .gbs = fmt::format("{:.0f}", 1e-9 * bytes_per_s),
              .copy_percent = "-",
              .streaming_percent = "-"};
  if (!memory_bound(device, c)) return rates;
  rates.tflops = "-";
  if (streaming_seconds > 0) rates.streaming_percent = fmt::format("{:.1f}", 100 * streaming_seconds / seconds);
  if (copy_bytes_per_s > 0) rates.copy_percent = fmt::format("{:.1f}", 100 * bytes_per_s / copy_bytes_per_s);
  return rates;
}

std::string standings(const std::vector<BaselinePlan>& tried) {
  constexpr std::size_t kMaxColumns = 120;
  std::vector<BaselinePlan> timed;
  std::copy_if(tried.begin(), tried.end(), std::back_inserter(timed),
               [](const BaselinePlan& plan) { return plan.seconds > 0; });
  std::stable_sort(timed.begin(), timed.end(),
                   [](const BaselinePlan& a, const BaselinePlan& b) { return a.seconds < b.seconds; });
  std::string line;
  for (const BaselinePlan& plan : timed) {
    line += fmt::format("{}{} {}", line.empty() ? "" : ", ", plan.name, microseconds(plan.seconds));
  }
  return line.empty() || line.size() > kMaxColumns ? "" : line + " us";
}

std::string origin_of_best(const BaselineResult& baseline) {
  if (baseline.searched == Searched::heuristic) return "heuristic; --baseline all searches";
  if (baseline.searched == Searched::kept) return "best of an earlier search";
  const auto timed = std::ranges::count_if(baseline.tried, [](const BaselinePlan& plan) { return plan.seconds > 0; });
  return fmt::format("best of {}", timed);
}

Table::Table(const std::vector<Job>& jobs, std::optional<double> copy_bytes_per_s, std::string flags)
    : timed_(copy_bytes_per_s.has_value()), copy_bytes_per_s_(copy_bytes_per_s.value_or(0)), flags_(std::move(flags)) {
  for (const Job& job : jobs) {
    version_width_ = std::max(version_width_, static_cast<int>(job.version->label().size()));
    problem_width_ = std::max(problem_width_, static_cast<int>(job.problem.text.size()));
  }
  print_row({"version", "problem", "us cold", "[95 %]", "us warm", "TFLOP/s", "GB/s", "% copy", "% stream", "% roof",
             "x lib", "x heur", "error", "status"},
            version_width_, problem_width_, timed_);
}

void Table::print(const Result& result) {
  print_baseline(result);
  Row row = row_of(result.problem, result.times, result.verdict, copy_bytes_per_s_, result.streaming);
  row.version = result.version->label();
  if (result.times) {
    row.baseline = ratio(result.baseline.times, *result.times);
    row.heuristic = ratio(result.baseline.heuristic_times, *result.times);
  }
  const bool failed = result.verdict.status == Status::fail || result.verdict.status == Status::untrusted;
  const int known = causes_.count();
  if (failed) row.status = fmt::format("{}, cause {}", name(result.verdict.status), causes_.add(result));
  print_row(row, version_width_, problem_width_, timed_);
  if (causes_.count() > known) print_failure(result);
}

void Table::print_failure(const Result& result) {
  const Version& v = *result.version;
  std::cout << wrapped(result.verdict.reason) << source_excerpt(result.verdict.reason)
            << fmt::format("    again: ./ladder bench {} --version {} --problem '{}'{}", v.pass->path(), v.number,
                           result.problem.text, flags_)
            << std::endl;
}

// A row for the library, once a problem, above the versions that meet it.
void Table::print_baseline(const Result& result) {
  const BaselineResult& baseline = result.baseline;
  // Said once for each reason, and not where nobody expects a baseline.
  if (!baseline.reason.empty() && backend::kind() == backend::Kind::gpu && reasons_.insert(baseline.reason).second) {
    std::cout << (baseline.library.empty() ? "no baseline: " : "of the baselines: ") << baseline.reason << std::endl;
  }
  if (baseline.library.empty() || !baseline.times || baseline_problem_ == result.problem.text) return;
  baseline_problem_ = result.problem.text;
  Row row = row_of(result.problem, baseline.times, baseline.verdict, copy_bytes_per_s_, result.streaming);
  row.version = baseline.library;
  row.baseline = "1.00";
  row.heuristic = ratio(baseline.heuristic_times, *baseline.times);
  row.status += fmt::format("  {} ({})", baseline.best.name, origin_of_best(baseline));
  print_row(row, version_width_, problem_width_, timed_);
  if (const std::string line = standings(baseline.tried); !line.empty()) std::cout << "    " << line << std::endl;
}

std::string progress_line(const std::vector<Job>& jobs, std::size_t index, double seconds) {
  std::vector<std::size_t> ends;  // one past the last job of each problem
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (i > 0 && jobs[i].problem.text == jobs[i - 1].problem.text) ends.pop_back();
    ends.push_back(i + 1);
  }
  const auto end = std::ranges::upper_bound(ends, index);
  const std::size_t begin = end == ends.begin() ? 0 : *std::prev(end);
  const auto num_before = static_cast<double>(end - ends.begin());
  const double done = num_before + static_cast<double>(index - begin) / static_cast<double>(*end - begin);
  std::string left;
  if (done > 0) left = fmt::format(", about {:.0f} s left", seconds / done * (static_cast<double>(ends.size()) - done));
  return fmt::format("{} of {} problem{}{}: {}", end - ends.begin() + 1, ends.size(), ends.size() == 1 ? "" : "s", left,
                     jobs[index].name());
}

std::string tally(const std::vector<Result>& results) {
  std::array<int, 5> counts{};
  std::set<std::string> baseline_failed;  // problems
  for (const Result& result : results) {
    ++counts[static_cast<std::size_t>(result.verdict.status)];
    if (result.baseline.verdict.status == Status::fail) baseline_failed.insert(result.problem.text);
  }
  return fmt::format("{} passed, {} failed, {} skipped, {} untrusted{}{}", counts[0], counts[1], counts[2], counts[3],
                     counts[4] > 0 ? fmt::format(", {} not checked", counts[4]) : "",
                     baseline_failed.empty() ? "" : fmt::format("; baseline: {} failed", baseline_failed.size()));
}

}  // namespace ladder

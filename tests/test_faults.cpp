// Every broken kernel of tests/faults must be caught by the detectors that its file names; its correct twin must pass.
//
// An ordinary build tests wrong values and the emulator's reports; preset order also tests that each race is reported under
// every schedule. Preset sanitize tests that the sanitizer reports its faults, each in a separate process, because a
// sanitizer's report ends the process. The closing table lists each fault's detectors.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <string>

#include "core/simt/options.h"
#include "tests/faults/faults.h"
#include "tests/support.h"

namespace ladder::faults {
namespace {

const bool limited = test::at_start([] {
  setenv("LADDER_WATCHDOG_SECONDS", "1", 1);
  setenv("LADDER_ORDER", "unset", 1);
});

constexpr int kSeeds = 8;
constexpr const char* kSchedules[] = {"asc", "desc", "random", "greedy", "late"};

#if defined(LADDER_ASAN)
constexpr const char* kSanitizer = "AddressSanitizer";
#else
constexpr const char* kSanitizer = nullptr;
#endif

// Cells of the closing table: [fault][schedule or sanitizer].
std::map<std::string, std::map<std::string, std::string>>& table() {
  static std::map<std::string, std::map<std::string, std::string>> cells;
  return cells;
}

class PrintTable : public testing::Environment {
  void TearDown() override {
    if (table().empty()) return;
    std::printf("\n%-30s", "fault");
    for (const char* schedule : kSchedules) std::printf("%-14s", schedule);
    std::printf("%s\n", kSanitizer ? kSanitizer : "");
    for (const auto& [fault, cells] : table()) {
      std::printf("%-30s", fault.c_str());
      for (const char* schedule : kSchedules) {
        const auto cell = cells.find(schedule);
        std::printf("%-14s", cell == cells.end() ? "" : cell->second.c_str());
      }
      const auto cell = cells.find("sanitizer");
      std::printf("%s\n", cell == cells.end() ? "" : cell->second.c_str());
    }
    std::printf("\n");
  }
};
[[maybe_unused]] testing::Environment* const print_table = testing::AddGlobalTestEnvironment(new PrintTable);

struct Outcome {
  int runs = 0;
  int wrong = 0;
  int reports = 0;
  std::string report;  // the first report

  std::string cell() const {
    if (runs == 0) return "";
    if (reports == runs) return "report";
    if (wrong == runs) return "wrong value";
    if (wrong + reports == 0) return "-";
    return (reports ? "report " : "wrong ") + std::to_string(wrong + reports) + "/" + std::to_string(runs);
  }
};

Outcome run_all(const Entry& entry, bool broken, const std::string& schedule) {
  Outcome outcome;
  const bool seeded = schedule != "asc" && schedule != "desc";
  if (broken && entry.detectors.slow && schedule != "asc") return outcome;
  const simt::Options before = simt::options();
  for (int seed = 1; seed <= (seeded ? kSeeds : 1); ++seed) {
    simt::options().set_schedule(seeded ? schedule + ":" + std::to_string(seed) : schedule);
    ++outcome.runs;
    try {
      outcome.wrong += !entry.run(broken);
    } catch (const Failure& fault) {
      ++outcome.reports;
      if (outcome.report.empty()) outcome.report = fault.what();
    }
  }
  simt::options() = before;
  return outcome;
}

struct Child {
  int status = 0;
  std::string output;
};

// Run one kernel in a separate process; returns its output.
Child run_child(const Entry& entry, bool broken) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = std::string("LADDER_FAULT=") + entry.name +
                              " LADDER_FAULT_BROKEN=" + (broken ? "1" : "0") + " '" + self +
                              "' --gtest_also_run_disabled_tests --gtest_filter=Child.* 2>&1";
  Child child;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot start " + self);
  char buffer[4096];
  for (std::size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) child.output.append(buffer, n);
  const int status = pclose(pipe);
  child.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return child;
}

TEST(Child, DISABLED_runs_the_kernel_that_the_environment_names) {
  const char* name = std::getenv("LADDER_FAULT");
  ASSERT_NE(name, nullptr);
  const bool broken = std::getenv("LADDER_FAULT_BROKEN") == std::string("1");
  simt::options().threads = 1;
  for (const Entry& entry : all()) {
    if (entry.name == std::string(name)) {
      const Outcome outcome = run_all(entry, broken, "asc");
      if (!broken) {
        EXPECT_EQ(outcome.wrong + outcome.reports, 0) << outcome.report;
      }
      return;
    }
  }
  FAIL() << "no fault " << name;
}

class Faults : public testing::TestWithParam<Entry> {};

TEST_P(Faults, the_correct_twin_passes) {
  const Entry& entry = GetParam();
  for (const std::string schedule : kSchedules) {
    const Outcome outcome = run_all(entry, false, schedule);
    EXPECT_EQ(outcome.wrong, 0) << schedule;
    EXPECT_EQ(outcome.reports, 0) << schedule << ": " << outcome.report;
  }
  if (kSanitizer != nullptr) {
    const Child child = run_child(entry, false);
    EXPECT_EQ(child.status, 0) << child.output;
  }
}

std::string name_of(const testing::TestParamInfo<Entry>& info) { return info.param.name; }

// Returns the faults that at least one of some detectors must catch.
std::vector<Entry> faults_for(std::initializer_list<bool Detectors::*> detectors) {
  std::vector<Entry> selected;
  for (const Entry& entry : all()) {
    if (std::any_of(detectors.begin(), detectors.end(), [&](auto each) { return entry.detectors.*each; })) {
      selected.push_back(entry);
    }
  }
  return selected;
}

INSTANTIATE_TEST_SUITE_P(All, Faults, testing::ValuesIn(all()), name_of);

#if defined(LADDER_ASAN)

// Returns the sanitizer's summary ("data race a.cu:13 in kernel"), or empty.
std::string summary(const std::string& output, const std::string& sanitizer) {
  const std::string key = "SUMMARY: " + sanitizer + ": ";
  const std::size_t at = output.find(key);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + key.size();
  std::string line = output.substr(begin, output.find('\n', begin) - begin);
  line = line.substr(0, line.find(" in "));
  const std::size_t slash = line.rfind('/');
  const std::size_t blank = line.rfind(' ', slash);
  if (slash != std::string::npos && blank != std::string::npos) line.erase(blank + 1, slash - blank);
  return line;
}

// Returns UndefinedBehaviorSanitizer's summary, or empty. It shares the build with AddressSanitizer and may come first.
std::string undefined_behaviour(const std::string& output) {
  const std::string key = "runtime error: ";
  const std::size_t at = output.find(key);
  if (at == std::string::npos) return {};
  const std::size_t line = output.rfind('\n', at) + 1;
  const std::size_t file = output.rfind('/', at);
  const std::string where = output.substr(std::max(line, file + 1), at - std::max(line, file + 1));
  return where + output.substr(at + key.size(), output.find('\n', at) - at - key.size());
}

class SanitizerFaults : public testing::TestWithParam<Entry> {};

TEST_P(SanitizerFaults, are_reported_with_the_kernels_line) {
  const Entry& entry = GetParam();
  const Child child = run_child(entry, true);
  std::string found = summary(child.output, kSanitizer);
  if (found.empty()) found = undefined_behaviour(child.output);
  table()[entry.name]["sanitizer"] = found.empty() ? "-" : found;
  EXPECT_FALSE(found.empty()) << child.output;
  EXPECT_NE(child.status, 0);
  EXPECT_NE(child.output.find("tests/faults/"), std::string::npos) << "the kernel's line is named: " << child.output;
  std::printf("%s: %s. Caught by %s: %s\n", entry.name, entry.fault, kSanitizer, found.c_str());
}

INSTANTIATE_TEST_SUITE_P(All, SanitizerFaults, testing::ValuesIn(faults_for({&Detectors::asan})), name_of);

#else

class PlainFaults : public testing::TestWithParam<Entry> {};

TEST_P(PlainFaults, are_caught_by_value_or_report) {
  const Entry& entry = GetParam();
  int wrong = 0;
  int reports = 0;
  int runs = 0;
  std::string first;
  for (const std::string schedule : kSchedules) {
    const Outcome outcome = run_all(entry, true, schedule);
    table()[entry.name][schedule] = outcome.cell();
    wrong += outcome.wrong;
    reports += outcome.reports;
    runs += outcome.runs;
    if (first.empty()) first = outcome.report;
  }
  const bool is_race = test::kChecksOrder && entry.detectors.order;
  if (entry.detectors.value && !is_race) {
    EXPECT_GT(wrong + (test::kChecksOrder ? reports : 0), 0) << entry.fault;
  }
  if (is_race && !entry.detectors.report) {
    EXPECT_EQ(reports, runs) << entry.fault;
    const bool is_unset = first.find(": nobody wrote this shared memory: ") != std::string::npos;
    EXPECT_TRUE(is_unset || first.find(": a race: ") != std::string::npos) << first;
    EXPECT_NE(first.find(entry.detectors.says), std::string::npos) << first;
    EXPECT_NE(first.find("[schedule "), std::string::npos) << first;
  }
  if (entry.detectors.report) {
    EXPECT_EQ(reports, runs) << entry.fault;
    // A refused launch is refused under every schedule.
    EXPECT_TRUE(first.find("[schedule ") != std::string::npos || first.starts_with("invalid launch: "))
        << "a report says how to replay it: " << first;
    EXPECT_NE(first.find(entry.detectors.says), std::string::npos) << first;
  }
  std::printf("%s: %s. Caught by %s%s\n", entry.name, entry.fault,
              wrong > 0 ? "a wrong value" : "the report: ", wrong > 0 ? "" : first.c_str());
}

INSTANTIATE_TEST_SUITE_P(All, PlainFaults,
                         testing::ValuesIn(faults_for({&Detectors::value, &Detectors::report, &Detectors::order})),
                         name_of);

#endif

TEST(FaultsTable, every_fault_has_a_detector) {
  EXPECT_GE(all().size(), 12u);
  for (const Entry& entry : all()) {
    const Detectors& d = entry.detectors;
    EXPECT_TRUE(d.value || d.report || d.asan || d.order) << entry.name;
  }
}

}  // namespace
}  // namespace ladder::faults

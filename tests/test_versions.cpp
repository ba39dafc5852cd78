// Every version of a layer, on every problem of the layer's sets ci and edge and on random problems, in each of its
// dtypes, under every schedule of the backend, with every pattern. Problems of ci also test that the bits are the same
// every time. Preset order is slow and has a set of its own: a problem or two in which threads share memory.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "core/backend.h"
#include "core/check/check.h"
#include "core/paths.h"
#include "core/shapes.h"
#include "tests/coverage.h"
#include "tests/repeats.h"
#include "tests/support.h"
#include "tests/versions/non_finite.h"
#include "tests/versions/overlap.h"

namespace ladder {
namespace {

// True with AddressSanitizer, which sees the same accesses under every schedule, and nearly the same in every dtype.
#if defined(LADDER_ASAN)
constexpr bool kMemoryOnly = true;
#else
constexpr bool kMemoryOnly = false;
#endif

// Returns the reason why the version cannot run on this device, or empty.
std::string why_no_device(const Version& v) {
  if (const char* reason = backend::unavailable()) return reason;
  const int arch = backend::device().arch;
  return (v.def.arch_specific ? arch == v.def.min_arch : arch >= v.def.min_arch) ? "" : "another architecture";
}

// Failures of a version, one entry for each line of its kernel. A failure is printed in full the first time; the end
// prints counts.
class Bugs {
 public:
  // Returns false if a failure with the same kernel line, or without any line, was printed before.
  bool is_new(const std::string& reason, const Case& c, const std::string& schedule) {
    const std::string source_line = reason.substr(0, reason.find(' '));
    Bug& bug = bugs_[source_line.find(".cu:") == std::string::npos ? "without a line:" : source_line];
    bug.schedules.insert(schedule);
    bug.dtypes.insert(std::string(name(c.dtype)));
    bug.problems.insert(c.text);
    return ++bug.count == 1;
  }

  void print(const std::string& version) const {
    for (const auto& [what, bug] : bugs_) {
      fmt::print("{}: {} {} checks of {} problems, in {}, under {}\n", version, what, bug.count, bug.problems.size(),
                 fmt::join(bug.dtypes, ", "), fmt::join(bug.schedules, ", "));
    }
  }

 private:
  struct Bug {
    int count = 0;
    std::set<std::string> schedules, dtypes, problems;
  };
  std::map<std::string, Bug> bugs_;
};

std::map<const Version*, Bugs>& bugs() {
  static std::map<const Version*, Bugs> of_versions;
  return of_versions;
}

class PrintBugs : public testing::Environment {
  void TearDown() override {
    for (const auto& [version, found] : bugs()) found.print(version->pass->path() + " " + version->label());
  }
};
[[maybe_unused]] testing::Environment* const print_bugs = testing::AddGlobalTestEnvironment(new PrintBugs);

// Run checks of one version, and fail the current test for each check that does not pass.
class Checks {
 public:
  explicit Checks(const Version& v) : version_(v) {}
  ~Checks() { backend::set_schedule(backend::schedules().front()); }

  // Check under each schedule; the reference computes once. `plan` names one of the version's plans; empty is the
  // default.
  void run(const Case& c, const std::vector<std::string>& schedules, const std::string& plan = {}) {
    std::optional<CheckedCase> checked(std::in_place, c, test::seed());
    for (const std::string& schedule : schedules) run(checked, schedule, plan);
  }
  void repeat(const Case& c) {
    if (const std::string reason = why_not(version_, c); !reason.empty()) {
      skipped_ = reason;
      return;
    }
    ++num_checked_;
    const std::string difference = test::difference_between_launches(version_, c, test::seed());
    if (!difference.empty()) {
      ADD_FAILURE() << fmt::format("{} '{}' {}: {}\n  {}", version_.pass->path(), c.text, version_.label(), difference,
                                   test::rerun_command());
    }
  }

  void run_conduct(const Case& c, int launches) {
    std::optional<CheckedCase> checked(std::in_place, c, test::seed());
    ++num_checked_;
    const Verdict verdict = check_conduct(version_, *checked, launches);
    if (verdict.status == Status::pass) return;
    ADD_FAILURE() << fmt::format("{} '{}' {}: {}\n  {}", version_.pass->path(), c.text, version_.label(),
                                 verdict.reason, test::rerun_command());
  }

  void replay(const Case& c) {
    if (const std::string reason = why_not(version_, c); !reason.empty()) return skip(reason);
    ++num_checked_;
    const std::string difference = test::difference_between_replays(version_, c, test::seed());
    if (!difference.empty()) {
      ADD_FAILURE() << fmt::format("{} '{}' {}: {}\n  {}", version_.pass->path(), c.text, version_.label(), difference,
                                   test::rerun_command());
    }
  }

  void run_behind_slow_writer(const Case& c) {
    if (const std::string reason = why_not(version_, c); !reason.empty()) return skip(reason);
    ++num_checked_;
    const std::string difference = test::difference_behind_slow_writer(version_, c, test::seed());
    if (!difference.empty()) {
      ADD_FAILURE() << fmt::format("{} '{}' {}: {}\n  {}", version_.pass->path(), c.text, version_.label(), difference,
                                   test::rerun_command());
    }
  }

  void run_non_finite(const Case& c) {
    ++num_checked_;
    const std::string hidden = test::hidden_non_finite(version_, c, test::seed());
    if (!hidden.empty()) {
      ADD_FAILURE() << fmt::format("{} '{}' {}: {}\n  {}", version_.pass->path(), c.text, version_.label(), hidden,
                                   test::rerun_command());
    }
  }

  void skip(const std::string& reason) { skipped_ = reason; }

  void note_check() { ++num_checked_; }

  int num_checked() const { return num_checked_; }

  // Returns the reason for a skip if no check was possible, else empty.
  std::string skipped() const { return num_checked_ == 0 ? skipped_ : ""; }

 private:
  void run(std::optional<CheckedCase>& c, const std::string& schedule, const std::string& plan) {
    backend::set_schedule(schedule);
    const Verdict verdict =
        test::trusted_verdict(c, [&](CheckedCase& inputs) { return check(version_, inputs, plan); });
    if (verdict.status == Status::skip) {
      skipped_ = verdict.reason;
      return;
    }
    ++num_checked_;
    if (verdict.status == Status::pass) return;
    const bool is_new = bugs()[&version_].is_new(verdict.reason, **c, schedule);
    if (is_new) {
      const std::string difference = difference_between_schedules(version_, *c, plan);
      ADD_FAILURE() << fmt::format("{} '{}' {}{}: {}: {}{}\n{}  schedule {}, seed {}\n  {}", version_.pass->path(),
                                   (*c)->text, version_.label(), plan.empty() ? "" : ", plan '" + plan + "'",
                                   name(verdict.status), verdict.reason, difference.empty() ? "" : "; " + difference,
                                   source_excerpt(verdict.reason), schedule, c->seed(), test::rerun_command());
    } else if (!failed_) {
      ADD_FAILURE() << "as told before; by itself: " << test::rerun_command();
    }
    failed_ = true;
  }

  const Version& version_;
  bool failed_ = false;
  int num_checked_ = 0;
  std::string skipped_;
};

class VersionTest : public testing::Test {
 public:
  explicit VersionTest(std::function<void(Checks&)> body, const Version& v) : body_(std::move(body)), checks_(v) {}

  void TestBody() override {
    if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
    body_(checks_);
    if (const std::string reason = checks_.skipped(); !reason.empty()) GTEST_SKIP() << reason;
  }

 private:
  std::function<void(Checks&)> body_;
  Checks checks_;
};

void add_test(const Version& v, const std::string& name, std::function<void(Checks&)> body) {
  const std::string suite = fmt::format("{}_{}_{}", v.pass->layer, v.pass->name, v.label());
  testing::RegisterTest(suite.c_str(), name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                        [body = std::move(body), &v] { return new VersionTest(body, v); });
}

// Returns all schedules for a problem of [ci]. A problem of [edge] gets the first schedule and another that the seed
// draws: [edge] takes most of the tests' time, a race shows on the small problems of [ci], and an index error at an
// edge under any schedule.
std::vector<std::string> schedules_for(const std::string& set, const NamedCase& named) {
  std::vector<std::string> orders = test::schedules();
  if (kMemoryOnly) return {orders[0]};
  if (set != "edge" || orders.size() <= 2) return orders;
  std::mt19937_64 random(test::seed() ^ std::hash<std::string>{}(named.name));
  return {orders[0], orders[1 + random() % (orders.size() - 1)]};
}

// Returns all dtypes; with kMemoryOnly a single one, which rotates from problem to problem.
std::vector<Dtype> dtypes_for(const Version& v, std::size_t problem) {
  if (kMemoryOnly) return {v.def.dtypes[problem % v.def.dtypes.size()]};
  return v.def.dtypes;
}

void add_named_tests(const Version& v, const std::string& set) {
  std::size_t problem = 0;
  for (const NamedCase& named : named_cases(*v.pass, set)) {
    add_test(v, set + '_' + named.name, [&v, set, named, dtypes = dtypes_for(v, problem++)](Checks& checks) {
      const std::vector<std::string> orders = schedules_for(set, named);
      for (const Dtype dtype : dtypes) checks.run(named.problem.with_dtype(dtype), orders);
    });
  }
}

// Run every plan on problems of [ci] and [edge], also a plan that is no problem's default, until it has run on a few in
// each dtype. A plan that never ran fails the test.
[[maybe_unused]] void add_plan_test(const Version& v) {
  if (v.def.plan_names.empty()) return;
  add_test(v, "plans", [&v](Checks& checks) {
    constexpr int kProblems = test::kSanitized ? 1 : 4;  // for each plan and dtype
    std::vector<std::string> orders = test::schedules();
    if (orders.size() > 2) orders.erase(orders.begin() + 1, orders.end() - 1);
    if (!why_no_device(v).empty()) return checks.skip(why_no_device(v));
    std::map<std::string, std::map<Dtype, int>> runs;
    for (const char* name : v.def.plan_names) runs[name];
    for (const char* set : {"ci", "edge"}) {
      for (const NamedCase& named : named_cases(*v.pass, set)) {
        for (const Dtype dtype : v.def.dtypes) {
          const Case c = named.problem.with_dtype(dtype);
          if (!why_not(v, c).empty()) continue;
          for (const Kernel& kernel : plans(v, c)) {
            ASSERT_TRUE(runs.contains(kernel.name)) << v.label() << " does not name its plan '" << kernel.name << "'";
            if (++runs[kernel.name][dtype] > kProblems) continue;
            checks.run(c, orders, kernel.name);
          }
        }
      }
    }
    for (const auto& [name, dtypes] : runs) {
      EXPECT_FALSE(dtypes.empty()) << v.label() << ": its plan '" << name << "' runs on no problem of ci and edge";
    }
  });
}

// Returns the problems of [ci] that the version runs in the dtype, least work first.
std::vector<Case> supported(const Version& v, Dtype dtype) {
  std::vector<Case> cases;
  for (const NamedCase& named : named_cases(*v.pass, "ci")) {
    const Case c = named.problem.with_dtype(dtype);
    if (why_not(v, c).empty()) cases.push_back(c);
  }
  std::ranges::stable_sort(cases, {}, [](const Case& c) { return c.flops + c.traffic.bytes(); });
  return cases;
}

// Use the version on the two smallest problems of [ci] in each dtype; the smallest many times, in the first dtype.
[[maybe_unused]] void add_conduct_test(const Version& v) {
  add_test(v, "conduct", [&v](Checks& checks) {
    constexpr std::size_t kProblems = test::kSanitized ? 1 : 2;
    if (!why_no_device(v).empty()) return checks.skip(why_no_device(v));
    for (const Dtype dtype : v.def.dtypes) {
      const std::vector<Case> cases = supported(v, dtype);
      for (std::size_t i = 0; i < std::min(kProblems, cases.size()); ++i) {
        const bool many = i == 0 && dtype == v.def.dtypes.front() && !test::kSanitized;
        checks.run_conduct(cases[i], many ? kConductLaunches : 1);
      }
    }
  });
}

[[maybe_unused]] void add_coverage_test(const Version& v) {
  add_test(v, "coverage", [&v](Checks& checks) {
    EXPECT_EQ(test::too_narrow(v), "");
    EXPECT_EQ(test::untested_plan(v), "");
    EXPECT_EQ(test::untested_rows(*v.pass, test::tested_problems(*v.pass)), "");
    EXPECT_EQ(test::changed_by_deriving_again(*v.pass), "");
    checks.note_check();
  });
}

// Capture once into a graph and replay twice: the bits must equal those of launches.
[[maybe_unused]] void add_graph_test(const Version& v) {
  add_test(v, "graph", [&v](Checks& checks) {
    for (const NamedCase& named : named_cases(*v.pass, "ci")) {
      for (const Dtype dtype : v.def.dtypes) checks.replay(named.problem.with_dtype(dtype));
    }
  });
}

[[maybe_unused]] void add_repeat_test(const Version& v) {
  add_test(v, "repeats", [&v](Checks& checks) {
    for (const NamedCase& named : named_cases(*v.pass, "ci")) {
      for (const Dtype dtype : v.def.dtypes) checks.repeat(named.problem.with_dtype(dtype));
    }
  });
}

// A NaN or an infinity in an input shows in the outputs, as with PyTorch: on the problems of [ci] in the first dtype,
// and on the smallest in the others.
[[maybe_unused]] void add_non_finite_test(const Version& v) {
  add_test(v, "non_finite", [&v](Checks& checks) {
    if (!why_no_device(v).empty()) return checks.skip(why_no_device(v));
    for (const Dtype dtype : v.def.dtypes) {
      std::vector<Case> cases = supported(v, dtype);
      if (dtype != v.def.dtypes.front() && !cases.empty()) cases.resize(1);
      for (const Case& c : cases) checks.run_non_finite(c);
    }
  });
}

// Returns the problems for which the H200's table of promoted versions names v. A partial program lacks other named
// versions.
std::vector<Case> promoted_problems(const Version& v) {
  const std::string pass = v.pass->path() + "  ";
  const std::string label = fmt::format("  {}  ", v.label());
  std::vector<Case> problems;
  std::ifstream in(data_dir() + "/runtime/promoted/h200.txt");
  EXPECT_TRUE(in.is_open());
  for (std::string line; std::getline(in, line);) {
    const auto end = line.find(label);
    if (!line.starts_with(pass) || end == std::string::npos) continue;
    const std::string problem = line.substr(pass.size(), end - pass.size());
    problems.push_back(v.pass->parse(problem.substr(0, problem.find_last_not_of(' ') + 1)));
  }
  return problems;
}

// Every launch of a promoted version must overlap the previous kernel (programmatic dependent launch): a serial launch
// adds its start and end to a training step.
[[maybe_unused]] void add_promoted_test(const Version& v) {
  add_test(v, "promoted_overlaps", [&v](Checks& checks) {
    if (backend::kind() == backend::Kind::gpu) return checks.skip("the emulator counts them without running any");
    for (const Case& problem : promoted_problems(v)) {
      const std::int64_t count = test::serial_launches(v, problem);
      EXPECT_EQ(count, 0) << v.label() << " '" << problem.text << "': launches without overlaps_previous";
      checks.note_check();
    }
    checks.skip("not promoted");
  });
}

// Check on a GPU that the version waits for the previous kernel before its first access. The emulator checks it
// always.
[[maybe_unused]] void add_overlap_test(const Version& v) {
  add_test(v, "behind_slow_writer", [&v](Checks& checks) {
    if (backend::kind() == backend::Kind::emulator) return checks.skip("launches do not overlap on the emulator");
    for (const NamedCase& named : named_cases(*v.pass, "ci")) {
      for (const Dtype dtype : v.def.dtypes) checks.run_behind_slow_writer(named.problem.with_dtype(dtype));
    }
  });
}

// Check random problems. A version with alignment requirements supports one in a hundred of random()'s draws.
[[maybe_unused]] void add_random_tests(const Version& v) {
  static constexpr int kProblems = test::kSanitized ? 15 : 60;
  static constexpr int kDraws = 20'000;
  add_test(v, "random", [&v](Checks& checks) {
    std::mt19937_64 random(test::seed());
    const auto orders = test::schedules();
    int num_problems = 0;
    for (int draw = 0; draw < kDraws && num_problems < kProblems && !testing::Test::HasFailure(); ++draw) {
      const Case problem = v.pass->random(random()).with_dtype(v.def.dtypes[random() % v.def.dtypes.size()]);
      if (draw > 0 && !why_not(v, problem).empty()) continue;  // the first draw reports the reason if none is supported
      checks.run(problem, {orders[random() % orders.size()]});
      num_problems = checks.num_checked();
    }
    testing::Test::RecordProperty("problems", num_problems);
    if (num_problems < kProblems && !testing::Test::HasFailure()) {
      fmt::print("{} {}: {} of {} random problems checked: of {} draws it supports no more\n", v.pass->path(),
                 v.label(), num_problems, kProblems, kDraws);
    }
  });
}

const bool registered = test::at_start([] {
  for (const Version* v : all_versions()) {
#if defined(LADDER_ORDER)
    add_named_tests(*v, "order");
#else
    add_named_tests(*v, "ci");
    add_named_tests(*v, "edge");
    add_plan_test(*v);
    add_conduct_test(*v);
    add_coverage_test(*v);
    add_graph_test(*v);
    add_repeat_test(*v);
    add_non_finite_test(*v);
    add_promoted_test(*v);
    add_overlap_test(*v);
    add_random_tests(*v);
#endif
  }
});

}  // namespace
}  // namespace ladder

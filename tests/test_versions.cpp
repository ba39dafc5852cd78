// Every registered version, on every problem of its layer's sets ci and edge and on random ones, in each of its dtypes,
// under every schedule of the backend, with both patterns. On those of ci also whether it gives the same bits every time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "core/backend.h"
#include "core/check.h"
#include "core/problem_line.h"
#include "core/shapes.h"
#include "tests/repeats.h"
#include "tests/support.h"

namespace ladder {
namespace {

// The verdict from the first seed of a few whose values no null answer fits by chance, as one pixel times a weight of 1;
// `seed` becomes that one.
Verdict trusted_check(const Version& v, const Case& c, std::uint64_t& seed) {
  constexpr int kTries = 20;
  Verdict verdict = check(v, c, seed);
  for (int i = 0; i < kTries && verdict.status == Status::untrusted; ++i) verdict = check(v, c, ++seed);
  return verdict;
}

// Runs checks of one version, and fails the current test for each that does not pass.
class Checks {
 public:
  explicit Checks(const Version& v) : version_(v) {}
  ~Checks() { backend::set_schedule(backend::schedules().front()); }

  void run(const Case& c, const std::string& schedule) {
    backend::set_schedule(schedule);
    std::uint64_t seed = test::seed();
    const Verdict verdict = trusted_check(version_, c, seed);
    if (verdict.status == Status::skip) {
      skipped_ = verdict.reason;
      return;
    }
    ++num_judged_;
    if (verdict.status != Status::pass) {
      ADD_FAILURE() << fmt::format("{} '{}' {}: {}: {}\n  schedule {}, seed {}\n  {}", version_.pass->path(), c.text,
                                   version_.label(), name(verdict.status), verdict.reason, schedule, seed,
                                   test::rerun_command());
    }
  }

  void repeat(const Case& c) {
    if (const std::string reason = why_not(version_, c); !reason.empty()) {
      skipped_ = reason;
      return;
    }
    ++num_judged_;
    const std::string difference = test::difference_between_launches(version_, c, test::seed());
    if (!difference.empty()) {
      ADD_FAILURE() << fmt::format("{} '{}' {}: {}\n  {}", version_.pass->path(), c.text, version_.label(), difference,
                                   test::rerun_command());
    }
  }

  // The reason for a skip where no check was possible, else empty.
  std::string skipped() const { return num_judged_ == 0 ? skipped_ : ""; }

 private:
  const Version& version_;
  int num_judged_ = 0;
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

void add_named_tests(const Version& v, const std::string& set) {
  for (const NamedCase& named : named_cases(*v.pass, set)) {
    add_test(v, set + '_' + named.name, [&v, problem = named.problem](Checks& checks) {
      for (const Dtype dtype : v.dtypes) {
        const Case c = v.pass->parse(with_dtype(problem, dtype));
        for (const std::string& schedule : test::schedules()) checks.run(c, schedule);
      }
    });
  }
}

void add_repeat_test(const Version& v) {
  add_test(v, "repeats", [&v](Checks& checks) {
    for (const NamedCase& named : named_cases(*v.pass, "ci")) {
      for (const Dtype dtype : v.dtypes) checks.repeat(v.pass->parse(with_dtype(named.problem, dtype)));
    }
  });
}

void add_random_tests(const Version& v) {
  constexpr int kProblems = 200;
  add_test(v, fmt::format("random_{}", kProblems), [&v](Checks& checks) {
    std::mt19937_64 random(test::seed());
    const auto orders = test::schedules();
    for (int i = 0; i < kProblems && !testing::Test::HasFailure(); ++i) {
      const std::string problem = with_dtype(v.pass->random_problem(random()), v.dtypes[random() % v.dtypes.size()]);
      checks.run(v.pass->parse(problem), orders[random() % orders.size()]);
    }
  });
}

const bool registered = test::at_start([] {
  for (const Version* v : all_versions()) {
    add_named_tests(*v, "ci");
    add_named_tests(*v, "edge");
    add_repeat_test(*v);
    add_random_tests(*v);
  }
});

}  // namespace
}  // namespace ladder

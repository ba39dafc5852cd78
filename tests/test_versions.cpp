// Every version of a layer, on every problem of the layer's sets ci and edge and on random ones, in each of its dtypes,
// under every schedule of the backend, with both patterns. On those of ci also whether it gives the same bits every time.
// ThreadSanitizer, which is slow, has a set of its own: a problem or two in which threads meet.
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
    ++num_checked_;
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
    ++num_checked_;
    const std::string difference = test::difference_between_launches(version_, c, test::seed());
    if (!difference.empty()) {
      ADD_FAILURE() << fmt::format("{} '{}' {}: {}\n  {}", version_.pass->path(), c.text, version_.label(), difference,
                                   test::rerun_command());
    }
  }

  int num_checked() const { return num_checked_; }

  // The reason for a skip where no check was possible, else empty.
  std::string skipped() const { return num_checked_ == 0 ? skipped_ : ""; }

 private:
  const Version& version_;
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

[[maybe_unused]] void add_repeat_test(const Version& v) {
  add_test(v, "repeats", [&v](Checks& checks) {
    for (const NamedCase& named : named_cases(*v.pass, "ci")) {
      for (const Dtype dtype : v.dtypes) checks.repeat(v.pass->parse(with_dtype(named.problem, dtype)));
    }
  });
}

// Problems that nobody chose. Of what random_problem() draws, a version with alignments to keep supports one in a hundred.
[[maybe_unused]] void add_random_tests(const Version& v) {
  static constexpr int kProblems = 60;
  static constexpr int kDraws = 20'000;
  add_test(v, "random", [&v](Checks& checks) {
    std::mt19937_64 random(test::seed());
    const auto orders = test::schedules();
    int num_problems = 0;
    for (int draw = 0; draw < kDraws && num_problems < kProblems && !testing::Test::HasFailure(); ++draw) {
      const std::string problem = with_dtype(v.pass->random_problem(random()), v.dtypes[random() % v.dtypes.size()]);
      const Case c = v.pass->parse(problem);
      if (draw > 0 && !why_not(v, c).empty()) continue;  // the first says why, if none is supported
      checks.run(c, orders[random() % orders.size()]);
      num_problems = checks.num_checked();
    }
    testing::Test::RecordProperty("problems", num_problems);
    if (num_problems < kProblems) {
      fmt::print("{} {}: {} of {} random problems checked: of {} draws it supports no more\n", v.pass->path(),
                 v.label(), num_problems, kProblems, kDraws);
    }
  });
}

const bool registered = test::at_start([] {
  for (const Version* v : all_versions()) {
#if defined(LADDER_TSAN)
    add_named_tests(*v, "tsan");
#else
    add_named_tests(*v, "ci");
    add_named_tests(*v, "edge");
    add_repeat_test(*v);
    add_random_tests(*v);
#endif
  }
});

}  // namespace
}  // namespace ladder

// Versions that cheat. Checks that pass a cheat, or fail an honest version, are broken. Every pass is tried with
// generic cheats, which know nothing but its tensors (tests/wrong/generic.cu), on its layer's set ci, and with its own
// cheats (tests/wrong/<layer>/<pass>.cu), on their own problems.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "core/backend.h"
#include "core/check/check.h"
#include "core/shapes.h"
#include "tests/coverage.h"
#include "tests/repeats.h"
#include "tests/support.h"
#include "tests/wrong/cheat.h"

namespace ladder {
namespace {

constexpr int kRandomProblems = 20;

struct Findings {
  int passed = 0;
  int rejected = 0;
  std::string skipped;  // the reason, if the version cannot run here
  std::string first;    // the first rejection: its reason and problem
};

// Returns the checks' findings about the version in one dtype, up to the first rejection.
Findings findings(const Version& v, const std::vector<Case>& problems) {
  Findings f;
  bool is_first = true;
  for (const Case& c : problems) {
    std::optional<CheckedCase> checked(std::in_place, c, test::seed());
    const Verdict verdict = test::trusted_verdict(checked, [&](CheckedCase& inputs) { return check(v, inputs); });
    if (verdict.status == Status::skip) {
      f.skipped = verdict.reason;
      continue;
    }
    std::string fault = verdict.reason;
    if (verdict.status == Status::pass) fault = check_conduct(v, *checked, is_first ? kConductLaunches : 1).reason;
    if (fault.empty()) fault = test::difference_between_launches(v, c, test::seed());
    is_first = false;
    if (fault.empty()) {
      ++f.passed;
      continue;
    }
    f.first = fmt::format("{}  [{}]", fault, c.text);
    f.rejected = 1;
    break;
  }
  return f;
}

void run(const wrong::Cheat& cheat, const std::vector<std::string>& problems) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  std::string skipped;
  int num_tried = 0;
  for (const Dtype dtype : cheat.version.def.dtypes) {
    std::vector<Case> cases;
    for (const std::string& problem : problems) cases.push_back(cheat.version.pass->parse(problem).with_dtype(dtype));
    std::mt19937_64 random(test::seed());
    for (int i = 0; i < (cheat.any_problem ? 0 : kRandomProblems); ++i) {
      cases.push_back(cheat.version.pass->random(random()).with_dtype(dtype));
    }
    // Sort by work, least first: most cheats are caught on the first case, which is launched many times.
    std::ranges::stable_sort(cases, {}, [](const Case& c) { return c.flops + c.traffic.bytes(); });
    const Findings f = findings(cheat.version, cases);
    if (f.passed + f.rejected == 0) {
      skipped = f.skipped;
      continue;
    }
    ++num_tried;
    fmt::print("{:<34} {} {}\n", cheat.label(), name(dtype),
               f.rejected == 0 ? fmt::format("passes all {}", f.passed)
                               : fmt::format("rejected after {}: {}", f.passed, f.first));
    if (cheat.honest) {
      EXPECT_EQ(f.rejected, 0) << f.first << "\n  " << test::rerun_command();
    } else {
      EXPECT_GT(f.rejected, 0) << cheat.label() << " was not found out in " << name(dtype) << "\n  "
                               << test::rerun_command();
    }
  }
  if (num_tried == 0) GTEST_SKIP() << skipped;
}

class WrongTest : public testing::Test {
 public:
  WrongTest(const wrong::Corpus& corpus, const wrong::Cheat& cheat) : corpus_(corpus), cheat_(cheat) {}
  void TestBody() override { run(cheat_, corpus_.problems); }

 private:
  const wrong::Corpus& corpus_;
  const wrong::Cheat& cheat_;
};

// A cheat that rounds its inputs, tested on the longest sum, where bounds that grow with the sum are widest.
class RoundedInputsTest : public testing::Test {
 public:
  RoundedInputsTest(const Case& c, const wrong::Cheat& cheat) : case_(c), cheat_(cheat) {}
  void TestBody() override {
    std::optional<CheckedCase> checked(std::in_place, case_, test::seed());
    const Verdict verdict = test::trusted_verdict(
        checked, [&](CheckedCase& inputs) { return check(cheat_.version, inputs, Pattern::normal); });
    if (verdict.status == Status::skip) GTEST_SKIP() << verdict.reason;
    EXPECT_EQ(verdict.status, Status::fail) << case_.text << ": error " << verdict.error << ' ' << verdict.reason;
  }

 private:
  const Case case_;
  const wrong::Cheat& cheat_;
};

Case longest_sum(const Pass& pass) {
  Case longest;
  std::int64_t length = 0;
  for (const ShapeSet& set : shape_sets(pass.layer)) {
    // The set [long_sum], if any, is for this test alone: too long for every version under every schedule.
    if (set.name != "ci" && set.name != "edge" && set.name != "long_sum") continue;
    for (const NamedCase& named : named_cases(pass, set.name)) {
      const Case c = named.problem.with_dtype(Dtype::f32);
      for (const TensorSpec* output : written(c.tensors)) {
        if (output->reduction_length <= length) continue;
        length = output->reduction_length;
        longest = c;
      }
    }
  }
  return longest;
}

// Generic cheats of every pass in this program.
std::vector<wrong::Corpus>& generic_corpora() {
  static std::vector<wrong::Corpus> instance = [] {
    std::vector<wrong::Corpus> corpora;
    for (const Pass* pass : all_passes()) {
      if (versions_of(*pass).empty()) continue;  // the test are_there_for_every_pass reports it
      wrong::Corpus corpus{.pass = pass};
      for (const NamedCase& named : named_cases(*pass, "ci")) corpus.problems.push_back(named.problem.text);
      corpus.cheats = wrong::generic_cheats(*pass, corpus.problems);
      corpora.push_back(std::move(corpus));
    }
    return corpora;
  }();
  return instance;
}

const bool registered = test::at_start([] {
  for (const auto* corpora : {&generic_corpora(), &wrong::corpora()}) {
    for (const wrong::Corpus& corpus : *corpora) {
      const std::string suite = fmt::format("Wrong_{}_{}", corpus.pass->layer, corpus.pass->name);
      for (const wrong::Cheat& cheat : corpus.cheats) {
        testing::RegisterTest(suite.c_str(), cheat.label().c_str(), nullptr, nullptr, __FILE__, __LINE__,
                              [&corpus, &cheat] { return new WrongTest(corpus, cheat); });
      }
    }
  }
  for (const wrong::Corpus& corpus : generic_corpora()) {
    for (const wrong::Cheat& cheat : corpus.cheats) {
      if (!cheat.version.idea.ends_with("_inputs")) continue;
      const std::string suite = fmt::format("WrongLongestSum_{}_{}", corpus.pass->layer, corpus.pass->name);
      testing::RegisterTest(suite.c_str(), cheat.label().c_str(), nullptr, nullptr, __FILE__, __LINE__,
                            [c = longest_sum(*corpus.pass), &cheat] { return new RoundedInputsTest(c, cheat); });
    }
  }
});

TEST(WrongCorpora, have_an_honest_version_and_cheats) {
  for (const auto* corpora : {&generic_corpora(), &wrong::corpora()}) {
    for (const wrong::Corpus& corpus : *corpora) {
      ASSERT_GE(corpus.cheats.size(), 5u) << corpus.pass->path();
      EXPECT_EQ(std::ranges::count(corpus.cheats, true, &wrong::Cheat::honest), 1) << corpus.pass->path();
      EXPECT_TRUE(corpus.cheats.front().honest) << corpus.pass->path();
    }
  }
}

TEST(WrongCorpora, are_there_for_every_pass) {
  ASSERT_FALSE(all_passes().empty());
  for (const Pass* pass : all_passes()) {
    EXPECT_FALSE(versions_of(*pass).empty()) << pass->path() << ": ./ladder new " << pass->path() << " naive";
  }
  EXPECT_EQ(generic_corpora().size(), all_passes().size());
  for (const wrong::Corpus& corpus : wrong::corpora()) {
    EXPECT_NE(std::ranges::find(all_passes(), corpus.pass), all_passes().end()) << corpus.pass->path();
  }
}

// An honest version of a pass, changed by a test to hide behaviour from the tests' problems.
struct HiddenCase {
  const Pass* pass;
  Version version = *versions_of(*pass).front();
  Case first = named_cases(*pass, "ci").front().problem;
};

TEST(WrongCoverage, one_shape_supported) {
  for (const Pass* pass : all_passes()) {
    HiddenCase hidden{pass};
    EXPECT_EQ(test::too_narrow(hidden.version), "");
    hidden.version.def.supports = [first = hidden.first](const Case& c) {
      return c.text == first.with_dtype(c.dtype).text ? nullptr : "another shape than that of one benchmark";
    };
    EXPECT_NE(test::too_narrow(hidden.version), "") << pass->path();
  }
}

TEST(WrongCoverage, a_plan_above_tested_sizes) {
  for (const Pass* pass : all_passes()) {
    HiddenCase hidden{pass};
    EXPECT_EQ(test::untested_plan(hidden.version), "");
    double tested = 0;
    double largest = 0;
    for (const ShapeSet& set : shape_sets(pass->layer)) {
      for (const NamedCase& named : named_cases(*pass, set.name)) {
        const double work = named.problem.flops + named.problem.traffic.bytes();
        largest = std::max(largest, work);
        if (set.name == "ci" || set.name == "edge") tested = std::max(tested, work);
      }
    }
    if (largest <= tested) continue;  // no plan is above the tested sizes
    hidden.version.def.plans = [plans = hidden.version.def.plans, tested](const Case& c) {
      std::vector<KernelPlan<AnyPass>> found = plans(c);
      if (c.with_dtype(Dtype::f32).flops + c.with_dtype(Dtype::f32).traffic.bytes() > tested)
        found.front().name = "wrong";
      return found;
    };
    EXPECT_NE(test::untested_plan(hidden.version), "") << pass->path();
  }
}

// A registered cheat would be benchmarked.
TEST(WrongCorpora, register_no_version) {
  for (const Version* v : all_versions()) EXPECT_EQ(v->file.find("tests/"), std::string::npos) << v->file;
}

}  // namespace
}  // namespace ladder

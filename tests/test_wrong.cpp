// The cheats of tests/wrong: checks that let one of them pass are broken, and so are those that fail the honest kernel.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/backend.h"
#include "core/check.h"
#include "core/problem_line.h"
#include "tests/repeats.h"
#include "tests/support.h"
#include "tests/wrong/corpora.h"

namespace ladder {
namespace {

struct Findings {
  int passed = 0;
  int rejected = 0;
  std::string skipped;  // the reason, if the version cannot run here
  std::string first;    // the first rejection: by what, and on which problem
};

Findings findings(const Version& v, const std::vector<std::string>& problems) {
  Findings f;
  for (const std::string& problem : problems) {
    for (const Dtype dtype : v.def.dtypes) {
      const Case c = v.pass->parse(problem).with_dtype(dtype);
      const Verdict verdict = check(v, c, test::seed());
      if (verdict.status == Status::skip) {
        f.skipped = verdict.reason;
        continue;
      }
      std::string fault = verdict.reason;
      if (verdict.status == Status::pass) fault = test::difference_between_launches(v, c, test::seed());
      if (fault.empty()) {
        ++f.passed;
      } else if (f.rejected++ == 0) {
        f.first = fmt::format("{}  [{}]", fault, c.text);
      }
    }
  }
  return f;
}

void run(const Version& v, const std::vector<std::string>& problems) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  const Findings f = findings(v, problems);
  if (f.passed + f.rejected == 0) GTEST_SKIP() << f.skipped;
  const bool honest = v.idea == "honest";
  fmt::print("{:<26} {}\n", v.label(),
             f.rejected == 0 ? fmt::format("passes all {}", f.passed)
                             : fmt::format("rejected in {} of {}: {}", f.rejected, f.passed + f.rejected, f.first));
  if (honest) {
    EXPECT_EQ(f.rejected, 0) << f.first << "\n  " << test::rerun_command();
  } else {
    EXPECT_GT(f.rejected, 0) << v.label() << " was not found out\n  " << test::rerun_command();
  }
}

class WrongTest : public testing::Test {
 public:
  WrongTest(const Version& v, const wrong::Corpus& corpus) : version_(v), corpus_(corpus) {}
  void TestBody() override { run(version_, corpus_.problems); }

 private:
  const Version& version_;
  const wrong::Corpus& corpus_;
};

const bool registered = test::at_start([] {
  for (const wrong::Corpus& corpus : wrong::corpora()) {
    const std::string suite = fmt::format("Wrong_{}_{}", corpus.pass->layer, corpus.pass->name);
    for (const Version* v : versions_of(*corpus.pass)) {
      testing::RegisterTest(suite.c_str(), v->label().c_str(), nullptr, nullptr, __FILE__, __LINE__,
                            [v, &corpus] { return new WrongTest(*v, corpus); });
    }
  }
});

TEST(WrongCorpora, have_an_honest_version_and_cheats) {
  for (const wrong::Corpus& corpus : wrong::corpora()) {
    EXPECT_EQ(find_version(*corpus.pass, 1).idea, "honest") << corpus.pass->path();
    EXPECT_GE(versions_of(*corpus.pass).size(), 5u) << corpus.pass->path();
  }
}

TEST(WrongCorpora, are_there_for_every_pass) {
  const auto is_one_of = [](const Pass* pass, const Pass* wrong::Corpus::*role) {
    return std::any_of(wrong::corpora().begin(), wrong::corpora().end(),
                       [&](const wrong::Corpus& corpus) { return corpus.*role == pass; });
  };
  ASSERT_FALSE(all_passes().empty());
  for (const Pass* pass : all_passes()) {
    EXPECT_NE(is_one_of(pass, &wrong::Corpus::pass), is_one_of(pass, &wrong::Corpus::honest)) << pass->path();
  }
}

// One of dev/ would be measured, one without a corpus not be tried.
TEST(WrongCorpora, hold_every_cheat) {
  for (const Version* v : all_versions()) {
    const bool cheats = v->file.find("tests/wrong/") != std::string::npos;
    const bool tried = std::any_of(wrong::corpora().begin(), wrong::corpora().end(),
                                   [v](const wrong::Corpus& corpus) { return corpus.pass == v->pass; });
    EXPECT_EQ(cheats, tried) << v->file;
  }
}

}  // namespace
}  // namespace ladder

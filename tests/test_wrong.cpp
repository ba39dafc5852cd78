// The cheats of tests/wrong: a checker that lets one of them pass is broken, and so is one that fails the honest
// kernel.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/backend.h"
#include "core/check.h"
#include "core/problem_line.h"
#include "tests/support.h"
#include "tests/wrong/wrong.h"

namespace ladder {
namespace {

// Judged as the pass that they pretend to implement.
References judge_wrong(const Case& c, const HostTensors& inputs) {
  Case honest = c;
  honest.pass = &pass_of<conv3x3::Fprop>();
  return judge(honest, inputs);
}

// A square and benign one, then odd sizes and channels, an image that is not square, the first and last layers' three
// channels.
constexpr const char* kProblems[] = {"n1 h8 w8 c16 k16",     "n2 h8 w8 c16 k32 bias", "n1 h7 w9 c21 k13 bias",
                                     "n1 h4 w12 c8 k8 bias", "n2 h5 w5 c3 k24",       "n1 h6 w5 c24 k3"};

struct Findings {
  int passed = 0;
  int rejected = 0;
  std::string skipped;  // the reason, if the version cannot run here
  std::string first;    // the first rejection: by what, and on which problem
};

Findings findings(const Version& v) {
  Findings f;
  for (const char* problem : kProblems) {
    for (const Dtype dtype : v.dtypes) {
      const Case c = v.pass->parse(with_dtype(problem, dtype));
      const Verdict verdict = check(v, c, test::seed());
      if (verdict.status == Status::skip) {
        f.skipped = verdict.reason;
      } else if (verdict.status == Status::pass) {
        ++f.passed;
      } else if (f.rejected++ == 0) {
        f.first = fmt::format("{}  [{}]", verdict.reason, c.text);
      }
    }
  }
  return f;
}

void run(const Version& v) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  const Findings f = findings(v);
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

class Wrong : public testing::Test {
 public:
  explicit Wrong(const Version& v) : version_(v) {}
  void TestBody() override { run(version_); }

 private:
  const Version& version_;
};

const bool registered = test::at_start([] {
  for (const Version* v : versions_of(pass_of<wrong::Fprop>())) {
    testing::RegisterTest("Wrong", v->label().c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [v] { return new Wrong(*v); });
  }
});

TEST(WrongCorpus, HasAnHonestVersionAndManyCheats) {
  const auto versions = versions_of(pass_of<wrong::Fprop>());
  EXPECT_EQ(find_version(pass_of<wrong::Fprop>(), 1).idea, "honest");
  EXPECT_GE(versions.size(), 15u);
}

}  // namespace
}  // namespace ladder

LADDER_JUDGE(ladder::wrong::Fprop, ladder::judge_wrong)

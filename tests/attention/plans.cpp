// Every plan of every attention version, default or not, on every problem of ci and edge that has the plan. A single
// token is tested apart: no set has one, because dq and dk are zero then and a check would not tell right from wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/backend.h"
#include "core/check/check.h"
#include "core/shapes.h"
#include "dev/attention/attention.h"
#include "tests/support.h"

namespace ladder {
namespace {

void check_plans(const Pass& pass) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  for (const Version* v : versions_of(pass)) {
    if (v->def.plan_names.empty()) continue;
    std::set<std::string> seen;
    for (const char* set : {"ci", "edge"}) {
      for (const NamedCase& named : named_cases(pass, set)) {
        const Case c = named.problem.with_dtype(v->def.dtypes.front());
        if (!why_not(*v, c).empty()) continue;
        CheckedCase checked(c, test::seed());
        for (const Kernel& kernel : plans(*v, c)) {
          const Verdict verdict = check(*v, checked, kernel.name);
          EXPECT_EQ(verdict.status, Status::pass) << fmt::format("{} {} '{}': {}\n  {}", v->label(), kernel.name,
                                                                 c.text, verdict.reason, test::rerun_command());
          seen.insert(kernel.name);
        }
      }
    }
    EXPECT_EQ(seen, std::set<std::string>(v->def.plan_names.begin(), v->def.plan_names.end())) << v->label();
  }
}

TEST(AttentionPlans, Forward) { check_plans(pass_of<attention::Forward>()); }
TEST(AttentionPlans, Backward) { check_plans(pass_of<attention::Backward>()); }

// A single token has o = v, dv = d_o, and dq = dk = 0 up to rounding.
TEST(AttentionPlans, SingleToken) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  for (const char* line : {"n2 t1 heads3 d32", "n1 t1 heads2 d64"}) {
    for (const Pass* pass : {&pass_of<attention::Forward>(), &pass_of<attention::Backward>()}) {
      for (const Version* v : versions_of(*pass)) {
        for (const Dtype dtype : v->def.dtypes) {
          const Case c = pass->parse(line).with_dtype(dtype);
          if (!why_not(*v, c).empty()) continue;
          const ReferenceRun run = reference_run(c, Pattern::normal, test::seed());
          const Kernel kernel = plan(*v, c);
          DeviceTensors tensors(c, run.inputs, kernel.workspace_bytes);
          kernel.bind(tensors.pointers(), tensors.workspace())(backend::check_stream());
          backend::synchronize();
          EXPECT_EQ(tensors.damage(), "");
          const Verdict verdict = compare(c, Pattern::normal, tensors.outputs(), run.expected, v->def);
          EXPECT_EQ(verdict.status, Status::pass) << fmt::format("{} '{}': {}", v->label(), c.text, verdict.reason);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ladder

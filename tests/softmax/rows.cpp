// Rows that no random problem has, by every plan of every version: a single column, masked elements, one huge value, whole
// rows at the end of fp32's range.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "core/backend.h"
#include "core/check/check.h"
#include "dev/softmax/softmax.h"
#include "tests/support.h"

namespace ladder {
namespace {

using namespace softmax;

// Every plan of every version of the pass on these inputs.
void check_inputs(const Case& c, const std::vector<std::vector<float>>& inputs, const std::string& what) {
  const HostTensors on_host(c.tensors, inputs);
  const ExpectedOutputs expected = reference_outputs(c, on_host);
  for (const Version* v : versions_of(*c.pass)) {
    if (!why_not(*v, c).empty()) continue;
    for (const Kernel& kernel : plans(*v, c)) {
      DeviceTensors tensors(c, on_host, kernel.workspace_bytes);
      kernel.bind(tensors.pointers(), tensors.workspace())(backend::check_stream());
      backend::synchronize();
      EXPECT_EQ(tensors.damage(), "");
      const Verdict verdict = compare(c, Pattern::normal, tensors.outputs(), expected, v->def);
      EXPECT_EQ(verdict.status, Status::pass)
          << fmt::format("{} {} '{}' {}: {}", v->label(), kernel.name, c.text, what, verdict.reason);
    }
  }
}

TEST(SoftmaxRows, Extremes) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  // Rows of a warp, a block, and a cluster, as whole vectors and not.
  for (const char* line : {"m3 n12", "m2 n37", "m2 n1500", "m1 n1999", "m2 n9000"}) {
    const Case c = pass_of<Forward>().parse(line);
    const auto check_row = [&](const std::string& what, const auto& value_of) {
      const int n = problem_of<Forward>(c).n;
      std::vector<float> x(c.tensor("x").elements());
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = value_of(static_cast<int>(i % n), n);
      check_inputs(c, {x, {}}, what);
    };
    check_row("one huge value", [](int i, int n) { return i == n / 2 ? 3e38f : -3e38f; });
    check_row("the last is not masked", [&](int i, int n) { return i == n - 1 ? -5.0f : kMinusInfinity; });
    check_row("the first half is masked", [&](int i, int n) { return i < n / 2 ? kMinusInfinity : 0.125f * (i % 8); });
    check_row("all are the least", [](int, int) { return std::numeric_limits<float>::lowest(); });
    check_row("all are the greatest", [](int, int) { return std::numeric_limits<float>::max(); });
    check_row("rising", [](int i, int n) { return 60.0f * static_cast<float>(i) / static_cast<float>(n); });
    check_row("falling", [](int i, int n) { return -60.0f * static_cast<float>(i) / static_cast<float>(n); });
  }
}

TEST(SoftmaxRows, SingleColumn) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    for (const Pass* pass : {&pass_of<Forward>(), &pass_of<Backward>()}) {
      const Case c = pass->parse("m70 n1").with_dtype(dtype);
      check_inputs(c, fill(c, Pattern::normal, test::seed()).values, "one column");
    }
  }
}

TEST(SoftmaxRows, AMaskedRowIsNotANumber) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  const Case c = pass_of<Forward>().parse("m1 n40");
  const HostTensors inputs(c.tensors, {std::vector<float>(40, -std::numeric_limits<float>::infinity()), {}});
  for (const Version* v : versions_of(*c.pass)) {
    if (!why_not(*v, c).empty()) continue;
    for (const Kernel& kernel : plans(*v, c)) {
      DeviceTensors tensors(c, inputs, kernel.workspace_bytes);
      kernel.bind(tensors.pointers(), tensors.workspace())(backend::check_stream());
      const std::vector<float> y = tensors.outputs().front();
      EXPECT_TRUE(std::ranges::all_of(y,
                                      [](float value) {
                                        return value != value && std::bit_cast<std::uint32_t>(value) !=
                                                                     ~0u;  // computed, not left as poison
                                      }))
          << v->label() << ' ' << kernel.name;
    }
  }
}

}  // namespace
}  // namespace ladder

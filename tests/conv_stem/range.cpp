// Versions that run problems without allow_tf32 are as accurate where factors are large, small, or of many sizes at once: a
// version that works on parts of factors could lose some of them there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/backend.h"
#include "core/check/check.h"
#include "dev/conv_stem/conv_stem.h"
#include "tests/support.h"

namespace ladder {
namespace {

void scale(std::vector<float>& values, int exponent, int spread) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int offset = spread > 0 ? static_cast<int>(i * 7 % (2 * spread + 1)) - spread : 0;
    values[i] = std::ldexp(values[i], exponent + offset);
  }
}

void check_range(const Pass& pass, int exponent_x, int exponent_w, int spread) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  const Case c = pass.parse("n1 h19 w23 c3 k48 r11 stride4 pad2");
  HostTensors inputs = fill(c, Pattern::normal, test::seed());
  scale(inputs["x"], exponent_x, spread);
  scale(inputs["w"], exponent_w, spread);
  const ExpectedOutputs expected = reference_outputs(c, inputs);
  int checked = 0;
  for (const Version* v : versions_of(pass)) {
    if (!why_not(*v, c).empty()) continue;
    ++checked;
    const Kernel kernel = plan(*v, c);
    DeviceTensors tensors(c, inputs, kernel.workspace_bytes);
    kernel.bind(tensors.pointers(), tensors.workspace())(backend::check_stream());
    backend::synchronize();
    EXPECT_EQ(tensors.damage(), "");
    const Verdict compared = compare(c, Pattern::normal, tensors.outputs(), expected, v->def);
    const Verdict verdict = within_limit(compared, c, expected, v->def);
    EXPECT_EQ(verdict.status, Status::pass) << fmt::format("{} x 2^{}, w 2^{}: {}\n  {}", v->label(), exponent_x,
                                                           exponent_w, verdict.reason, test::rerun_command());
  }
  EXPECT_GT(checked, 0);
}

void check_ranges(const Pass& pass) {
  check_range(pass, 124, -100, 0);
  check_range(pass, -100, 60, 0);
  check_range(pass, 0, 0, 20);
}

TEST(ConvStemRange, Fprop) { check_ranges(pass_of<conv_stem::Fprop>()); }
TEST(ConvStemRange, ReluPool) { check_ranges(pass_of<conv_stem::ReluPool>()); }

}  // namespace
}  // namespace ladder

// The reference of silu at known points, and its gradient against differences of the forward pass.
#include <gtest/gtest.h>

#include <cmath>

#include "core/check/check.h"
#include "core/error.h"
#include "dev/silu/silu.h"
#include "tests/support.h"

namespace ladder {
namespace {

using namespace silu;

double forward(float x) {
  const Case c = pass_of<Forward>().parse("n1 c1");
  return reference_outputs(c, HostTensors(c.tensors, {{x}})).at(0).value[0];
}

double backward(float x, float dy) {
  const Case c = pass_of<Backward>().parse("n1 c1");
  return reference_outputs(c, HostTensors(c.tensors, {{x}, {dy}})).at(0).value[0];
}

TEST(SiluReference, KnownPoints) {
  // Worked out to 20 digits elsewhere.
  EXPECT_NEAR(forward(1), 0.7310585786300049, 1e-15);
  EXPECT_NEAR(forward(-1), -0.2689414213699951, 1e-15);
  EXPECT_NEAR(forward(-3), -0.14227761953270035, 1e-15);
  EXPECT_EQ(forward(0), 0);
  EXPECT_EQ(backward(0, 2), 1);
}

TEST(SiluReference, GradientIsTheSlope) {
  constexpr float kStep = 0x1p-10f;
  for (float x = -8; x <= 8; x += 0.125f) {
    const double wide = (forward(x + 2 * kStep) - forward(x - 2 * kStep)) / (4 * kStep);
    const double narrow = (forward(x + kStep) - forward(x - kStep)) / (2 * kStep);
    EXPECT_NEAR(backward(x, 1), (4 * narrow - wide) / 3, 1e-9) << x;
    EXPECT_NEAR(backward(x, -3), -3 * backward(x, 1), 1e-12) << x;
  }
}

TEST(SiluProblem, BadLinesAreRefused) {
  for (const char* line : {"n1", "c4", "n0 c4", "n99999 c99999"})
    EXPECT_THROW(Problem::parse(line), UsageError) << line;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Problem p = Problem::random(seed);
    EXPECT_EQ(Problem::parse(p.str()), p);
  }
}

}  // namespace
}  // namespace ladder

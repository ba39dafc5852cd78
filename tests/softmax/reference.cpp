// The reference of softmax against values computed by hand and invariants of the formula, and its gradient against
// differences of the forward pass.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "core/check/check.h"
#include "core/error.h"
#include "dev/softmax/softmax.h"
#include "tests/support.h"

namespace ladder {
namespace {

using namespace softmax;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class P>
std::vector<double> outputs(int rows, const std::vector<std::vector<float>>& inputs) {
  const Case c =
      pass_of<P>().parse("m" + std::to_string(rows) + " n" + std::to_string(std::ssize(inputs.front()) / rows));
  return reference_outputs(c, HostTensors(c.tensors, inputs)).at(0).value;
}

std::vector<double> forward(const std::vector<float>& x, int rows = 1) { return outputs<Forward>(rows, {x}); }

std::vector<double> backward(const std::vector<float>& y, const std::vector<float>& dy) {
  return outputs<Backward>(1, {y, dy});
}

TEST(SoftmaxReference, KnownValues) {
  // e^(ln 2) = 2 and e^0 = 1, with ln 2 rounded to fp32.
  const std::vector<double> y = forward({std::log(2.0f), 0, 0, std::log(4.0f)});
  EXPECT_NEAR(y[0], 2.0 / 8, 1e-8);
  EXPECT_NEAR(y[1], 1.0 / 8, 1e-8);
  EXPECT_NEAR(y[3], 4.0 / 8, 1e-8);
  // 1 / (1 + e^-1), to 16 digits.
  EXPECT_NEAR(forward({1, 0})[0], 0.7310585786300049, 1e-15);
  EXPECT_EQ(forward({7})[0], 1);
  for (const double probability : forward({3, 3, 3, 3, 3})) EXPECT_EQ(probability, 0.2);
}

TEST(SoftmaxReference, RowsAreTheirOwnAndSumToOne) {
  const std::vector<double> y = forward({0, std::log(3.0f), 5, 5}, 2);
  EXPECT_NEAR(y[0], 0.25, 1e-7);
  EXPECT_NEAR(y[1], 0.75, 1e-7);
  EXPECT_EQ(y[2], 0.5);
  EXPECT_EQ(y[3], 0.5);
  const Case c = pass_of<Forward>().parse("m6 n1000");
  const std::vector<double> drawn = reference_outputs(c, fill(c, Pattern::normal, test::seed())).at(0).value;
  for (int row = 0; row < 6; ++row) {
    EXPECT_NEAR(std::accumulate(drawn.begin() + row * 1000, drawn.begin() + (row + 1) * 1000, 0.0), 1, 1e-12);
  }
}

TEST(SoftmaxReference, AShiftChangesNothing) {
  // Powers of two, so that the shifted values are exact.
  const std::vector<double> y = forward({1, -2, 0.5, 3});
  for (const float shift : {64.0f, -64.0f, 8192.0f, -131072.0f}) {
    const std::vector<double> shifted = forward({1 + shift, -2 + shift, 0.5f + shift, 3 + shift});
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(shifted[i], y[i], 1e-15) << shift;
  }
}

TEST(SoftmaxReference, ExtremeRows) {
  const auto minus_infinity = static_cast<float>(-kInfinity);
  // One huge value takes all.
  EXPECT_EQ(forward({0, 3e38f, -3e38f}), (std::vector<double>{0, 1, 0}));
  // A masked (-infinity) element gets 0.
  EXPECT_EQ(forward({minus_infinity, 2, 2, minus_infinity}), (std::vector<double>{0, 0.5, 0.5, 0}));
  // The smallest finite value is not a mask.
  EXPECT_EQ(forward({-3.4e38f, -3.4e38f}), (std::vector<double>{0.5, 0.5}));
  // A fully masked row is NaN, as in PyTorch.
  for (const double probability : forward({minus_infinity, minus_infinity})) EXPECT_TRUE(std::isnan(probability));
}

TEST(SoftmaxReference, KnownGradients) {
  // The sum of y dy is 0.25 * 4 + 0.75 * 8 = 7.
  const std::vector<double> dx = backward({0.25, 0.75}, {4, 8});
  EXPECT_EQ(dx, (std::vector<double>{0.25 * -3, 0.75 * 1}));
  // A constant dy changes no y.
  EXPECT_EQ(backward({0.5, 0.25, 0.25}, {6, 6, 6}), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(backward({1}, {5})[0], 0);
}

TEST(SoftmaxReference, GradientIsTheSlope) {
  const std::vector<float> x = {0.5, -1, 2, 0, 1.25};
  const std::vector<float> dy = {1, -2, 0.5, 3, -0.25};
  const std::vector<double> exact = forward(x);
  const std::vector<double> dx = backward(std::vector<float>(exact.begin(), exact.end()), dy);
  constexpr float kStep = 0x1p-10f;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto loss = [&](float by) {
      std::vector<float> moved = x;
      moved[i] += by;
      const std::vector<double> y = forward(moved);
      return std::inner_product(y.begin(), y.end(), dy.begin(), 0.0);
    };
    const double wide = (loss(2 * kStep) - loss(-2 * kStep)) / (4 * kStep);
    const double narrow = (loss(kStep) - loss(-kStep)) / (2 * kStep);
    EXPECT_NEAR(dx[i], (4 * narrow - wide) / 3, 1e-7) << i;
  }
}

TEST(SoftmaxInputs, RowsLieFarFromZeroOnBothSides) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    const Case c = pass_of<Forward>().parse("m4 n50").with_dtype(dtype);
    const HostTensors inputs = fill(c, Pattern::normal, test::seed());
    for (std::size_t i = 0; i < 200; ++i) {
      const float value = inputs["x"][i];
      EXPECT_NEAR(value, i / 50 % 2 == 0 ? 100 : -100, 20) << i;
      EXPECT_EQ(value, round_to(dtype, value));
    }
  }
}

TEST(SoftmaxInputs, TheGradientsYIsASoftmax) {
  const Case c = pass_of<Backward>().parse("m3 n200");
  const HostTensors inputs = fill(c, Pattern::normal, test::seed());
  for (auto row = inputs["y"].begin(); row != inputs["y"].end(); row += 200) {
    EXPECT_NEAR(std::accumulate(row, row + 200, 0.0), 1, 1e-6);
  }
}

// derive() changes nothing when it runs again, so that exchanging two elements changes nothing else.
TEST(SoftmaxInputs, DerivedOnceAndForAll) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    for (const Case& c : {pass_of<Forward>().parse("m5 n33").with_dtype(dtype),
                          pass_of<Backward>().parse("m5 n33").with_dtype(dtype)}) {
      HostTensors inputs = fill(c, Pattern::normal, test::seed());
      const std::vector<std::vector<float>> before = inputs.values;
      c.pass->derive(c, inputs);
      EXPECT_EQ(inputs.values, before) << c.text;
    }
  }
}

TEST(SoftmaxProblem, BadLinesAreRefused) {
  for (const char* line : {"m1", "n4", "m0 n4", "m4 n1048577", "m1048576 n2048", "m4 n4 int32"})
    EXPECT_THROW(Problem::parse(line), UsageError) << line;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Problem p = Problem::random(seed);
    EXPECT_EQ(Problem::parse(p.str()), p);
    EXPECT_GT(p.n, 1);
  }
}

}  // namespace
}  // namespace ladder

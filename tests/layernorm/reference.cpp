// The reference of layernorm against hand-computed numbers, a formula that shares no code with it, and finite
// differences.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/check/check.h"
#include "core/error.h"
#include "dev/layernorm/layernorm.h"
#include "tests/support.h"

namespace ladder {
namespace {

using layernorm::Problem;

Case forward(const std::string& line) { return pass_of<layernorm::Forward>().parse(line); }
Case backward(const std::string& line) { return pass_of<layernorm::Backward>().parse(line); }

TEST(LayernormReference, HandComputedRows) {
  // Rows 1, 3 and 10, 20: means 2 and 15, variances 1 and 25.
  const Case c = forward("m2 n2");
  const ExpectedOutputs r = reference_outputs(c, HostTensors(c.tensors, {{1, 3, 10, 20}, {2, 3}, {100, 200}}));
  const double one = 1 / std::sqrt(1 + 1e-5);
  const double five = 5 / std::sqrt(25 + 1e-5);
  const std::vector<double> y = {100 - 2 * one, 200 + 3 * one, 100 - 2 * five, 200 + 3 * five};
  ASSERT_EQ(r.size(), 3u);
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(r[0].value[i], y[i], 1e-9);
  EXPECT_EQ(r[1].value, (std::vector<double>{2, 15}));
  EXPECT_NEAR(r[2].value[0], one, 1e-9);
  EXPECT_NEAR(r[2].value[1], five / 5, 1e-9);
}

TEST(LayernormReference, HandComputedGradients) {
  // x is -1, 0, 1 with rstd given as 2: xhat -2, 0, 2. gamma * dy is 3, -2, 5: A = 6, B = 4.
  const Case c = backward("m1 n3");
  const ExpectedOutputs r = reference_outputs(c, HostTensors(c.tensors, {{-1, 0, 1}, {3, -1, 1}, {1, 2, 5}, {0}, {2}}));
  ASSERT_EQ(r.size(), 3u);
  const std::vector<double> dx = {2 * (3 - (6 - 8) / 3.0), 2 * (-2 - 6 / 3.0), 2 * (5 - (6 + 8) / 3.0)};
  for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(r[0].value[i], dx[i], 1e-12);
  EXPECT_EQ(r[1].value, (std::vector<double>{-6, 0, 2}));
  EXPECT_EQ(r[2].value, (std::vector<double>{3, -1, 1}));
}

TEST(LayernormReference, AShiftOfARowChangesNothingButItsMean) {
  const Case c = forward("m3 n50");
  HostTensors inputs = fill(c, Pattern::integer, test::seed());
  const ExpectedOutputs plain = reference_outputs(c, inputs);
  for (int row = 0; row < 3; ++row) {
    for (int i = 0; i < 50; ++i) inputs["x"][row * 50 + i] += 1000.0f * static_cast<float>(row + 1);
  }
  const ExpectedOutputs shifted = reference_outputs(c, inputs);
  for (std::size_t i = 0; i < plain[0].value.size(); ++i) EXPECT_NEAR(shifted[0].value[i], plain[0].value[i], 1e-9);
  for (int row = 0; row < 3; ++row) {
    EXPECT_NEAR(shifted[1].value[row], plain[1].value[row] + 1000.0 * (row + 1), 1e-9);
    EXPECT_NEAR(shifted[2].value[row], plain[2].value[row], 1e-9);
  }
}

// Another formula: one row at a time in long double, variance from the mean of squares.
TEST(LayernormReference, AgreesWithAnotherFormula) {
  const Case c = forward("m4 n77 eps0.5");
  const auto& p = problem_of<layernorm::Forward>(c);
  const HostTensors in = fill(c, Pattern::normal, test::seed());
  const ExpectedOutputs r = reference_outputs(c, in);
  for (int row = 0; row < p.m; ++row) {
    long double sum = 0, squares = 0;
    for (int i = 0; i < p.n; ++i) {
      const long double x = in["x"][row * p.n + i];
      sum += x, squares += x * x;
    }
    const long double mean = sum / p.n;
    const long double deviation = std::sqrt(squares / p.n - mean * mean + static_cast<long double>(p.eps));
    for (int i = 0; i < p.n; ++i) {
      const long double y = (in["x"][row * p.n + i] - mean) / deviation * in["gamma"][i] + in["beta"][i];
      ASSERT_NEAR(r[0].value[row * p.n + i], static_cast<double>(y), 1e-9 * r[0].magnitude[row * p.n + i]);
    }
  }
}

// Returns the loss <dy, y>, whose gradient with respect to y is dy.
double loss(const Problem& p, const HostTensors& inputs, const std::vector<float>& dy) {
  const ExpectedOutputs r = reference_outputs(forward(p.str()), inputs);
  double sum = 0;
  for (std::size_t i = 0; i < dy.size(); ++i) sum += dy[i] * r[0].value[i];
  return sum;
}

// d loss / d inputs[tensor][i] by two central differences, Richardson-extrapolated: the error is of order step^4.
double slope(const Problem& p, HostTensors inputs, const std::vector<float>& dy, const char* tensor, std::size_t i) {
  constexpr float kStep = 0x1p-9f;
  const float middle = inputs[tensor][i];
  const auto difference = [&](float step) {
    inputs[tensor][i] = middle + step;
    const double above = loss(p, inputs, dy);
    inputs[tensor][i] = middle - step;
    const double below = loss(p, inputs, dy);
    return (above - below) / (2.0 * step);
  };
  return (4 * difference(kStep) - difference(2 * kStep)) / 3;
}

TEST(LayernormReference, GradientsAreFiniteDifferencesOfTheForwardFormula) {
  std::mt19937_64 random(test::seed());
  for (const char* line : {"m2 n7", "m3 n5 eps0.5", "m1 n12"}) {
    const Case c = backward(line);
    const auto& p = problem_of<layernorm::Backward>(c);
    HostTensors given = fill(c, Pattern::normal, random());
    // Round to a grid on which the steps are exact in fp32, and widen the rows' spread so that a step crosses little of
    // it.
    for (float& x : given["x"]) x = std::round(x * 1024) / 1024;
    for (float& gamma : given["gamma"]) gamma = std::round(gamma * 1024) / 1024;
    for (int row = 0; row < p.m; ++row) given["x"][row * p.n] = 4, given["x"][row * p.n + 1] = -4;
    const layernorm::Statistics s = layernorm::statistics(p, given["x"]);
    given["mean"].assign(s.mean.begin(), s.mean.end());
    given["rstd"].assign(s.rstd.begin(), s.rstd.end());
    HostTensors inputs(layernorm::Forward::tensors(p));
    inputs["x"] = given["x"];
    inputs["gamma"] = given["gamma"];
    inputs["beta"].assign(p.n, 0.0f);
    const ExpectedOutputs gradients = reference_outputs(c, given);
    const char* const of[] = {"x", "gamma", "beta"};
    for (int g = 0; g < 3; ++g) {
      const double scale = *std::max_element(gradients[g].magnitude.begin(), gradients[g].magnitude.end());
      for (std::size_t i = 0; i < gradients[g].value.size(); ++i) {
        ASSERT_NEAR(gradients[g].value[i], slope(p, inputs, given["dy"], of[g], i), 2e-6 * scale)
            << c.text << ", d" << of[g] << " at " << i << ": " << test::rerun_command();
      }
    }
  }
}

// dx is orthogonal to a shift of its row, and nearly orthogonal to a scaling of its row.
TEST(LayernormReference, DxOfARowAddsUpToNothing) {
  const Case c = backward("m5 n64");
  const HostTensors in = fill(c, Pattern::normal, test::seed());
  const Expected dx = reference_outputs(c, in)[0];
  for (int row = 0; row < 5; ++row) {
    double sum = 0, along_x = 0, scale = 0;
    for (int i = row * 64; i < (row + 1) * 64; ++i) {
      sum += dx.value[i];
      along_x += dx.value[i] * (in["x"][i] - in["mean"][row]);
      scale += dx.magnitude[i];
    }
    EXPECT_NEAR(sum, 0, 1e-6 * scale) << row;
    EXPECT_NEAR(along_x, 0, 1e-4 * scale) << row;
  }
}

// Means of 1e4 deviations: a mean rounded to fp32 before the subtraction is wrong by more than the bound, and a
// variance computed as the mean of squares minus the squared mean loses all digits.
TEST(LayernormReference, LargeMeansLeaveNoRoomForTheirRounding) {
  const Case c = forward("m2 n1024 mean20000");
  const HostTensors in = fill(c, Pattern::normal, test::seed());
  const ExpectedOutputs r = reference_outputs(c, in);
  int wrong = 0;
  for (int i = 0; i < 2048; ++i) {
    const int row = i / 1024;
    const auto rounded_mean = static_cast<float>(r[1].value[row] * (1 + 0x1p-23));
    const double y = (in["x"][i] - rounded_mean) * r[2].value[row] * in["gamma"][i % 1024] + in["beta"][i % 1024];
    wrong += std::abs(y - r[0].value[i]) > error_bound(c.tensor("y"), r[0].value[i], r[0].magnitude[i]);
  }
  EXPECT_GT(wrong, 300);
  for (int row = 0; row < 2; ++row) {
    float sum = 0, squares = 0;
    for (int i = 0; i < 1024; ++i)
      sum += in["x"][row * 1024 + i], squares += in["x"][row * 1024 + i] * in["x"][row * 1024 + i];
    const float mean = sum / 1024;
    const float rstd = 1 / std::sqrt(std::max(squares / 1024 - mean * mean, 0.0f) + 1e-5f);
    EXPECT_GT(std::abs(rstd - r[2].value[row]), error_bound(c.tensor("rstd"), r[2].value[row], r[2].magnitude[row]));
  }
}

TEST(LayernormReference, ConstantAnswersDoNotDiscriminate) {
  const auto discriminating = [](const Case& c) {
    std::string word;
    for (const Expected& r : reference_outputs(c, fill(c, Pattern::normal, test::seed())))
      word += r.discriminating ? 'y' : 'n';
    return word;
  };
  EXPECT_EQ(discriminating(forward("m3 n1")), "nnn");
  EXPECT_EQ(discriminating(forward("m3 n2")), "yyy");
  EXPECT_EQ(discriminating(backward("m3 n1")), "nny");
  EXPECT_EQ(discriminating(backward("m3 n2")), "nyy");
  EXPECT_EQ(discriminating(backward("m1 n3")), "yyn");
}

// Rows must differ in each pattern: long rows of one distribution would all have the same mean and deviation.
TEST(LayernormInputs, RowsDifferFromEachOther) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    const Case c = forward("m7 n2000").with_dtype(dtype);
    for (const Pattern pattern : {Pattern::normal, Pattern::integer}) {
      const layernorm::Statistics s =
          layernorm::statistics(problem_of<layernorm::Forward>(c), fill(c, pattern, test::seed())["x"]);
      for (int row = 0; row < 7; ++row) {
        EXPECT_GT(s.mean[row], 1 / s.rstd[row]) << row;
        if (row == 0) continue;
        EXPECT_GT(std::abs(s.mean[row] - s.mean[row - 1]), 1) << row;
        EXPECT_GT(std::abs(std::log2(s.rstd[row] / s.rstd[row - 1])), 0.1) << row;
      }
    }
  }
}

// derive() changes nothing when it runs again, so that exchanging two elements changes nothing else but statistics.
TEST(LayernormInputs, DerivedOnceAndForAll) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    for (const char* line : {"m7 n33", "m3 n40 mean20000"}) {
      for (const Case& c : {forward(line).with_dtype(dtype), backward(line).with_dtype(dtype)}) {
        HostTensors inputs = fill(c, Pattern::normal, test::seed());
        const std::vector<std::vector<float>> before = inputs.values;
        c.pass->derive(c, inputs);
        EXPECT_EQ(inputs.values, before) << c.text;
      }
    }
  }
}

// The two row sums in dx must count: near zero, a kernel could leave them out of long rows.
TEST(LayernormInputs, TheGradientsSumsCount) {
  const Case c = backward("m3 n4000");
  const HostTensors in = fill(c, Pattern::normal, test::seed());
  for (int row = 0; row < 3; ++row) {
    double a = 0, b = 0;
    for (int i = 0; i < 4000; ++i) {
      const std::size_t at = row * 4000 + i;
      const double g = in["gamma"][i] * in["dy"][at];
      a += g / 4000, b += g * (in["x"][at] - in["mean"][row]) * in["rstd"][row] / 4000;
    }
    EXPECT_GT(a, 0.2) << row;
    EXPECT_GT(b, 0.2) << row;
  }
}

TEST(LayernormProblem, BadLinesAreRefused) {
  for (const char* line :
       {"m1", "n4", "m0 n4", "m1 n4 mean-3", "m1 n4 eps0", "m1 n4 eps1x", "m99999 n99999", "m1 n4 silu"}) {
    EXPECT_THROW(Problem::parse(line), UsageError) << line;
  }
  for (const char* line : {"m16 n4194304 fp32", "m5 n7 mean20000 eps0.5 fp16"}) {
    EXPECT_EQ(Problem::parse(line).str(), line);
  }
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Problem p = Problem::random(seed);
    EXPECT_EQ(Problem::parse(p.str()), p);
    EXPECT_GT(p.n, 1);
  }
}

}  // namespace
}  // namespace ladder

// The reference of groupnorm against hand-computed numbers, a formula that shares no code with it, and finite
// differences.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/check/check.h"
#include "core/shapes.h"
#include "dev/groupnorm/groupnorm.h"
#include "tests/support.h"

namespace ladder {
namespace {

using groupnorm::Activation;
using groupnorm::Problem;

Case forward(const std::string& line) { return pass_of<groupnorm::Forward>().parse(line); }
Case backward(const std::string& line) { return pass_of<groupnorm::Backward>().parse(line); }

std::string null_answer(const Case& c, Pattern pattern) {
  return accepted_null_answer(c, pattern, reference_run(c, pattern, test::seed()));
}

TEST(GroupnormReference, HandComputedGroups) {
  // Two pixels, two groups of one channel. Values 1, 3 and 10, 20; means 2 and 15, variances 1 and 25.
  const Case c = forward("n1 h1 w2 c2 g2");
  const ExpectedOutputs r = reference_outputs(c, HostTensors(c.tensors, {{1, 10, 3, 20}, {2, 3}, {100, 200}}));
  const double one = 1 / std::sqrt(1 + 1e-5);
  const double five = 5 / std::sqrt(25 + 1e-5);
  const std::vector<double> y = {100 - 2 * one, 200 - 3 * five, 100 + 2 * one, 200 + 3 * five};
  ASSERT_EQ(r.size(), 3u);
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(r[0].value[i], y[i], 1e-9);
  EXPECT_EQ(r[1].value, (std::vector<double>{2, 15}));
  EXPECT_NEAR(r[2].value[0], one, 1e-9);
  EXPECT_NEAR(r[2].value[1], five / 5, 1e-9);
}

TEST(GroupnormReference, PartsOfXAreOneImage) {
  // Two pixels (1, 3) and (2, 6), one group of two channels. Channel 0 lies in x, channel 1 in x_rest.
  const Case c = forward("n1 h1 w2 c2 g1 no-affine split1");
  HostTensors in(c.tensors);
  in["x"] = {1, 2};
  in["x_rest"] = {3, 6};
  const ExpectedOutputs y = reference_outputs(c, in);
  EXPECT_EQ(y[1].value, std::vector<double>{3});
  const std::vector<double> centred = {-2, 0, -1, 3};
  for (std::size_t i = 0; i < centred.size(); ++i) {
    EXPECT_NEAR(y[0].value[i], centred[i] / std::sqrt(3.5 + 1e-5), 1e-9);
  }
  // The gradient equals that of an undivided x.
  const Case full = backward("n1 h1 w2 c2 g1 no-affine"), parts = backward("n1 h1 w2 c2 g1 no-affine split1");
  const auto gradient = [](const Case& c, const std::vector<float>& x, const std::vector<float>& x_rest) {
    HostTensors in(c.tensors);
    in["x"] = x;
    if (!x_rest.empty()) in["x_rest"] = x_rest;
    in["dy"] = {1, -2, 5, 7};
    groupnorm::Backward::derive(problem_of<groupnorm::Backward>(c), in);
    return reference_outputs(c, in).at(0).value;
  };
  EXPECT_EQ(gradient(parts, {1, 2}, {3, 6}), gradient(full, {1, 3, 2, 6}, {}));
}

// Returns activation(z): a single element is normalised to 0, so that the pre-activation is beta = z.
double activated(const std::string& word, float z) {
  const Case c = forward("n1 h1 w1 c1 g1 " + word);
  return reference_outputs(c, HostTensors(c.tensors, {{7}, {5}, {z}})).at(0).value.at(0);
}

TEST(GroupnormReference, ActivationsAtKnownPoints) {
  // Values at 1, -1 and -3, computed to 20 digits elsewhere.
  struct Known {
    const char* word;
    double one, minus_one, minus_three;
  };
  constexpr Known kKnown[] = {
      {"", 1, -1, -3},
      {"relu", 1, 0, 0},
      {"silu", 0.7310585786300049, -0.2689414213699951, -0.14227761953270035},
      {"gelu", 0.8413447460685429, -0.15865525393145707, -0.0040496940948902775},
      {"gelu-tanh", 0.8411919906082768, -0.15880800939172324, -0.0036373920817729943},
      {"mish", 0.8650983882673103, -0.30340146137410895, -0.14564746127562461},
  };
  for (const Known& known : kKnown) {
    EXPECT_NEAR(activated(known.word, 1), known.one, 1e-9) << known.word;
    EXPECT_NEAR(activated(known.word, -1), known.minus_one, 1e-9) << known.word;
    EXPECT_NEAR(activated(known.word, -3), known.minus_three, 1e-9) << known.word;
  }
}

// Normalise one group at a time, gathered into an array, in long double. Returns z, before the activation.
std::vector<double> normalised(const Problem& p, const HostTensors& inputs) {
  std::vector<double> z(p.elements());
  const int width = p.c / p.g;
  const auto x = [&](std::size_t i) {
    if (p.split == 0) return inputs.values[0][i];
    const int c = static_cast<int>(i % p.c);
    return c < p.split ? inputs["x"][i / p.c * p.split + c] : inputs["x_rest"][i / p.c * (p.c - p.split) + c - p.split];
  };
  for (int n = 0; n < p.n; ++n) {
    for (int g = 0; g < p.g; ++g) {
      std::vector<std::size_t> members;
      for (int row = 0; row < p.h; ++row) {
        for (int col = 0; col < p.w; ++col) {
          for (int c = g * width; c < (g + 1) * width; ++c) {
            members.push_back(((std::size_t(n) * p.h + row) * p.w + col) * p.c + c);
          }
        }
      }
      long double sum = 0;
      for (const std::size_t i : members) sum += x(i);
      const long double mean = sum / members.size();
      long double squares = 0;
      for (const std::size_t i : members) squares += (x(i) - mean) * (x(i) - mean);
      const long double deviation = std::sqrt(squares / members.size() + static_cast<long double>(p.eps));
      for (const std::size_t i : members) {
        const float gamma = p.affine ? inputs.values[1][i % p.c] : 1;
        const float beta = p.affine ? inputs.values[2][i % p.c] : 0;
        z[i] = static_cast<double>(gamma * (x(i) - mean) / deviation + beta);
      }
    }
  }
  return z;
}

TEST(GroupnormReference, AgreesWithGroupsOneByOne) {
  for (const char* set : {"ci", "edge"}) {
    for (const NamedCase& named : named_cases(pass_of<groupnorm::Forward>(), set)) {
      Problem p = problem_of<groupnorm::Forward>(named.problem);
      p.activation = Activation::identity;
      const HostTensors inputs = fill(forward(p.str()), Pattern::normal, test::seed());
      const ExpectedOutputs checked = reference_outputs(forward(p.str()), inputs);
      const std::vector<double> expected = normalised(p, inputs);
      ASSERT_EQ(checked[0].value.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(checked[0].value[i], expected[i], 1e-9 * checked[0].magnitude[i])
            << named.problem.text << " at " << i;
      }
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
double slope(const Problem& p, HostTensors inputs, const std::vector<float>& dy, int tensor, std::size_t i) {
  constexpr float kStep = 0x1p-9f;
  const float middle = inputs.values[tensor][i];
  const auto difference = [&](float step) {
    inputs.values[tensor][i] = middle + step;
    const double above = loss(p, inputs, dy);
    inputs.values[tensor][i] = middle - step;
    const double below = loss(p, inputs, dy);
    return (above - below) / (2.0 * step);
  };
  return (4 * difference(kStep) - difference(2 * kStep)) / 3;
}

// Convert backward inputs to forward inputs, with x, gamma and beta rounded to a grid on which the steps are exact in
// fp32.
HostTensors on_grid(const Problem& p, HostTensors& backward_inputs) {
  constexpr float kGrid = 0x1p-10f;
  HostTensors inputs(groupnorm::Forward::tensors(p));
  const auto take = [&](int from, int to) {
    for (float& value : backward_inputs.values[from]) value = std::round(value / kGrid) * kGrid;
    inputs.values[to] = backward_inputs.values[from];
  };
  take(0, 0);
  for (int i = 0; p.affine && i < 2; ++i) take(2 + i, 1 + i);
  groupnorm::Backward::derive(p, backward_inputs);
  return inputs;
}

// Returns true if finite differences are accurate: no group has so small a deviation that a step crosses much of it,
// and all of z is far enough from ReLU's kink to stay on its side.
bool is_smooth(const Problem& p, const HostTensors& inputs) {
  const std::vector<double> rstd = groupnorm::statistics(p, inputs.values[0]).rstd;
  const double steepest = *std::max_element(rstd.begin(), rstd.end());
  if (steepest > 8) return false;
  double gamma = 1;
  for (int c = 0; p.affine && c < p.c; ++c) gamma = std::max<double>(gamma, std::abs(inputs.values[1][c]));
  const double margin = 0.01 * (2 + gamma * steepest);
  for (const double z : normalised(p, inputs)) {
    if (p.activation == Activation::relu && std::abs(z) < margin) return false;
  }
  return true;
}

void expect_gradients(const Problem& p, std::mt19937_64& random) {
  const Case c = backward(p.str());
  HostTensors given = fill(c, Pattern::normal, random());
  HostTensors inputs = on_grid(p, given);
  for (int tries = 0; !is_smooth(p, inputs); ++tries) {
    ASSERT_LT(tries, 10000);
    given = fill(c, Pattern::normal, random());
    inputs = on_grid(p, given);
  }
  const ExpectedOutputs gradients = reference_outputs(c, given);
  ASSERT_EQ(gradients.size(), p.affine ? 3u : 1u);
  for (std::size_t g = 0; g < gradients.size(); ++g) {
    double scale = 0;
    for (const double value : gradients[g].magnitude) scale = std::max(scale, value);
    for (std::size_t i = 0; i < gradients[g].value.size(); ++i) {
      const double expected = slope(p, inputs, given.values[1], static_cast<int>(g), i);
      ASSERT_NEAR(gradients[g].value[i], expected, 2e-6 * scale) << c.text << " output " << g << " at " << i;
    }
  }
}

TEST(GroupnormReference, GradientsAreFiniteDifferencesOfTheForwardFormula) {
  std::mt19937_64 random(test::seed());
  const auto draw = [&](int least, int most) { return least + static_cast<int>(random() % (most - least + 1)); };
  for (int i = 0; i < 24 && !HasFailure(); ++i) {
    Problem p{.n = draw(1, 2), .h = draw(2, 3), .w = draw(1, 3), .g = draw(1, 3)};
    p.c = p.g * draw(1, 2);
    p.activation = static_cast<Activation>(i % 6);
    p.affine = i / 6 % 2 == 0;
    if (i % 4 == 0) p.eps = 0.5f;
    expect_gradients(p, random);
  }
  if (HasFailure()) fmt::print("{}\n", test::rerun_command());
}

TEST(GroupnormReference, ConstantAnswersDoNotDiscriminate) {
  const auto discriminating = [](const Case& c) {
    std::string word;
    for (const Expected& r : reference_outputs(c, fill(c, Pattern::normal, test::seed())))
      word += r.discriminating ? 'y' : 'n';
    return word;
  };
  EXPECT_EQ(discriminating(forward("n2 h1 w1 c4 g4 silu")), "ynn");
  EXPECT_EQ(discriminating(forward("n2 h1 w1 c4 g4 silu no-affine")), "nnn");
  EXPECT_EQ(discriminating(forward("n2 h1 w2 c4 g4 silu")), "yyy");
  EXPECT_EQ(discriminating(backward("n2 h1 w1 c4 g4 silu")), "nny");
  EXPECT_EQ(discriminating(backward("n2 h1 w2 c4 g4 silu")), "nyy");
  EXPECT_EQ(discriminating(backward("n2 h1 w3 c4 g4 silu")), "yyy");
  EXPECT_EQ(discriminating(backward("n2 h1 w3 c4 g4 silu embedding4 first0")), "yyyn");
  EXPECT_EQ(discriminating(backward("n2 h1 w3 c8 g4 silu embedding8 first0")), "yyyy");
  const Case blind = forward("n2 h1 w1 c4 g4 silu no-affine");
  EXPECT_NE(null_answer(blind, Pattern::normal).find("every output"), std::string::npos);
}

// addend2 and embedding change dx and de only by sums over the plain problem's dx.
TEST(GroupnormReference, AddendsAndRowsAreOfThePlainGradient) {
  const std::string plain = "n2 h3 w4 c6 g2 silu";
  const Case added = backward(plain + " addend2");
  const Case summed = backward(plain + " embedding9 first2");
  const HostTensors inputs = fill(added, Pattern::normal, test::seed());
  HostTensors of_summed = fill(summed, Pattern::normal, test::seed());
  HostTensors of_plain = fill(backward(plain), Pattern::normal, test::seed());
  for (const TensorSpec& spec : backward(plain).tensors) {
    if (spec.is_read()) of_plain[spec.name] = of_summed[spec.name] = inputs[spec.name];
  }
  const std::vector<double> dx = reference_outputs(backward(plain), of_plain)[0].value;
  const std::vector<double> sum = reference_outputs(added, inputs)[0].value;
  std::vector<double> de(of_summed["de"].begin(), of_summed["de"].end());
  for (int n = 0; n < 2; ++n) std::fill_n(de.begin() + n * 9 + 2, 6, 0.0);
  for (std::size_t i = 0; i < dx.size(); ++i) {
    EXPECT_NEAR(sum[i], dx[i] + inputs["addend"][i] + inputs["addend2"][i], 1e-12);
    de[i / 72 * 9 + 2 + i % 6] += dx[i];
  }
  const std::vector<double> found = reference_outputs(summed, of_summed)[3].value;
  for (std::size_t i = 0; i < de.size(); ++i) EXPECT_NEAR(found[i], de[i], 1e-12) << i;
}

// fp32 statistics without a pivot are wrong by more than the bound at a mean of 1e4 deviations.
TEST(GroupnormReference, LargeMeansLeaveNoRoomForTheirRounding) {
  const Case c = forward("n1 h16 w16 c8 g2 mean20000 no-affine");
  const auto& p = problem_of<groupnorm::Forward>(c);
  const HostTensors inputs = fill(c, Pattern::normal, test::seed());
  const ExpectedOutputs r = reference_outputs(c, inputs);
  const groupnorm::Statistics s = groupnorm::statistics(p, inputs.values[0]);
  int wrong = 0;
  for (std::int64_t i = 0; i < p.elements(); ++i) {
    const std::int64_t group = i % p.c / p.channels_per_group();
    const auto rounded_mean = static_cast<float>(s.mean[group] * (1 + 0x1p-23));
    const double y = (inputs.values[0][i] - rounded_mean) * s.rstd[group];
    wrong += std::abs(y - r[0].value[i]) > error_bound(c.tensor("y"), r[0].value[i], r[0].magnitude[i]);
  }
  EXPECT_GT(wrong, p.elements() / 2);
}

// Long sums of terms with either sign end near zero; the bound must still tell them from zero.
TEST(GroupnormReference, LargeCasesCanTell) {
  for (const Pattern pattern : {Pattern::normal, Pattern::integer}) {
    EXPECT_EQ(null_answer(backward("n32 h64 w64 c4 g2 silu"), pattern), "");
    EXPECT_EQ(null_answer(backward("n8 h64 w64 c8 g4 gelu"), pattern), "");
    EXPECT_EQ(null_answer(forward("n4 h64 w64 c8 g2 silu"), pattern), "");
  }
}

TEST(GroupnormProblem, BadLinesAreRefused) {
  for (const char* line :
       {"n1 h1 w1 c6 g4", "n1 h1 w1 c6 g0", "n1 h1 w1 c6", "n1 h1 w1 c6 g2 relu silu", "n1 h1 w1 c6 g2 mean-3",
        "n1 h1 w1 c6 g2 swish", "n99999 h999 w999 c6 g2", "n1 h1 w1 c6 g2 eps0", "n1 h1 w1 c6 g2 eps-1",
        "n1 h1 w1 c6 g2 eps1e99", "n1 h1 w1 c6 g2 eps1x", "n1 h1 w1 c6 g2 addend3", "n1 h1 w1 c6 g2 embedding6",
        "n1 h1 w1 c6 g2 embedding8 first3", "n1 h1 w1 c6 g2 addend1 embedding6 first0"}) {
    EXPECT_THROW(Problem::parse(line), std::exception) << line;
  }
  for (const char* line : {"n32 h64 w64 c64 g32 silu bf16", "n1 h5 w7 c6 g3 gelu-tanh no-affine mean20000 fp32",
                           "n1 h5 w7 c6 g3 addend2 fp16", "n1 h5 w7 c6 g3 silu embedding9 first2 bf16",
                           "n1 h5 w7 c6 g3 params16 eps1e-06 bf16", "n1 h5 w7 c6 g3 eps3.4028235e+38 fp16"}) {
    EXPECT_EQ(Problem::parse(line).str(), line);
  }
  EXPECT_EQ(Problem::parse("n1 h5 w7 c6 g3 eps1e-5 fp32").str(), "n1 h5 w7 c6 g3 fp32");
}

}  // namespace
}  // namespace ladder

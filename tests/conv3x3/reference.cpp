// The reference against formulas that share no code with it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <type_traits>

#include "core/check/check.h"
#include "core/error.h"
#include "core/shapes.h"
#include "dev/conv3x3/conv3x3.h"
#include "tests/support.h"

namespace ladder {
namespace {

using conv3x3::Problem;

Case make(const std::string& line) { return pass_of<conv3x3::Fprop>().parse(line); }

TEST(Conv3x3Reference, HandComputedImage) {
  // x = 1 2    w = 1 2 3     bias 10, one channel
  //     3 4        4 5 6
  //                7 8 9
  const Case c = make("n1 h2 w2 c1 k1 bias");
  const HostTensors inputs(c.tensors, {{1, 2, 3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {10}});
  const ExpectedOutputs y = reference_outputs(c, inputs);
  const std::vector<double> expected = {10 + 1 * 5 + 2 * 6 + 3 * 8 + 4 * 9, 10 + 1 * 4 + 2 * 5 + 3 * 7 + 4 * 8,
                                        10 + 1 * 2 + 2 * 3 + 3 * 5 + 4 * 6, 10 + 1 * 1 + 2 * 2 + 3 * 4 + 4 * 5};
  EXPECT_EQ(y.at(0).value, expected);
  EXPECT_EQ(y.at(0).magnitude, y.at(0).value) << "all terms are positive";
}

TEST(Conv3x3Reference, MagnitudeAddsAbsoluteTerms) {
  const Case c = make("n1 h1 w2 c1 k1 bias");
  const ExpectedOutputs y = reference_outputs(c, HostTensors(c.tensors, {{-1, 2}, {0, 0, 0, 0, -5, 3, 0, 0, 0}, {-7}}));
  EXPECT_EQ(y.at(0).value, (std::vector<double>{-7 + 5 + 6, -7 - 10}));
  EXPECT_EQ(y.at(0).magnitude, (std::vector<double>{7 + 5 + 6, 7 + 10}));
}

// A weight of 1 at tap (r, s) from channel j to channel j, and 0 elsewhere, moves the image by (1 - r, 1 - s).
TEST(Conv3x3Reference, DeltaWeightsShiftTheImage) {
  const Case c = make("n2 h4 w5 c3 k3");
  const auto& p = problem_of<conv3x3::Fprop>(c);
  HostTensors inputs = fill(c, Pattern::normal, test::seed());
  const std::vector<float>& x = inputs.values[0];
  for (int r = 0; r < 3; ++r) {
    for (int s = 0; s < 3; ++s) {
      std::vector<float>& w = inputs.values[1];
      std::fill(w.begin(), w.end(), 0.0f);
      for (int j = 0; j < 3; ++j) w[((j * 3 + r) * 3 + s) * 3 + j] = 1;
      const ExpectedOutputs y = reference_outputs(c, inputs);
      std::size_t at = 0;
      for (int n = 0; n < p.n; ++n) {
        for (int row = 0; row < p.h; ++row) {
          for (int col = 0; col < p.w; ++col) {
            for (int j = 0; j < 3; ++j, ++at) {
              const int from_row = row + r - 1;
              const int from_col = col + s - 1;
              const bool inside = from_row >= 0 && from_row < p.h && from_col >= 0 && from_col < p.w;
              const double expected = inside ? x[((n * p.h + from_row) * p.w + from_col) * 3 + j] : 0;
              ASSERT_EQ(y[0].value[at], expected) << fmt::format("tap {},{} at n{} h{} w{} c{}", r, s, n, row, col, j);
            }
          }
        }
      }
    }
  }
}

// The scatter form: every input element adds its products to the outputs that it reaches. Indices come from running
// over inputs, in long double, by way of a padded output whose border is dropped.
Expected scatter(const Problem& p, const HostTensors& inputs) {
  const int padded_h = p.h + 2;
  const int padded_w = p.w + 2;
  std::vector<long double> value(std::size_t(p.n) * padded_h * padded_w * p.k);
  std::vector<long double> magnitude(value.size());
  const float* x = inputs.values[0].data();
  for (int n = 0; n < p.n; ++n) {
    for (int i = 0; i < p.h; ++i) {
      for (int j = 0; j < p.w; ++j) {
        for (int c = 0; c < p.c; ++c, ++x) {
          const float* w = inputs.values[1].data();
          for (int k = 0; k < p.k; ++k) {
            for (int di = 2; di >= 0; --di) {
              for (int dj = 2; dj >= 0; --dj, w += p.c) {
                const std::size_t at = ((std::size_t(n) * padded_h + i + di) * padded_w + j + dj) * p.k + k;
                const long double term = static_cast<long double>(*x) * w[c];
                value[at] += term;
                magnitude[at] += std::abs(term);
              }
            }
          }
        }
      }
    }
  }
  const auto of = [&](const char* name, std::size_t i) {
    const std::vector<float>* const tensor = inputs.find(name);
    return tensor ? (*tensor)[i] : 0.0f;
  };
  Expected y;
  for (int n = 0; n < p.n; ++n) {
    for (int i = 1; i <= p.h; ++i) {
      for (int j = 1; j <= p.w; ++j) {
        for (int k = 0; k < p.k; ++k) {
          const std::size_t at = ((std::size_t(n) * padded_h + i) * padded_w + j) * p.k + k;
          const long double addends[] = {of("bias", k), of("e", std::size_t(n) * p.embedding + p.first + k),
                                         of("r", y.value.size())};
          for (const long double addend : addends) {
            value[at] += addend;
            magnitude[at] += std::abs(addend);
          }
          y.value.push_back(static_cast<double>(value[at]));
          y.magnitude.push_back(static_cast<double>(magnitude[at]));
        }
      }
    }
  }
  return y;
}

void expect_scatter_agrees(const Case& c, std::uint64_t seed) {
  const HostTensors inputs = fill(c, Pattern::normal, seed);
  const Expected checked = reference_outputs(c, inputs).at(0);
  const Expected expected = scatter(problem_of<conv3x3::Fprop>(c), inputs);
  ASSERT_EQ(checked.value.size(), expected.value.size());
  // Recursive summation in double (Higham 4.2): K roundings of at most 2^-53 of the magnitude each.
  const double bound = static_cast<double>(c.reduction_length()) * 0x1p-53;
  for (std::size_t i = 0; i < checked.value.size(); ++i) {
    ASSERT_LE(std::abs(checked.value[i] - expected.value[i]), bound * expected.magnitude[i]) << c.text << " at " << i;
    ASSERT_LE(std::abs(checked.magnitude[i] - expected.magnitude[i]), bound * expected.magnitude[i]) << c.text;
  }
}

TEST(Conv3x3Reference, AgreesWithTheScatterFormOnNamedShapes) {
  for (const char* set : {"ci", "edge"}) {
    for (const NamedCase& named : named_cases(pass_of<conv3x3::Fprop>(), set)) {
      expect_scatter_agrees(named.problem, test::seed());
    }
  }
}

TEST(Conv3x3Reference, AgreesWithTheScatterFormOnRandomShapes) {
  std::mt19937_64 random(test::seed());
  const auto draw = [&](int most) { return static_cast<int>(1 + random() % most); };
  for (int i = 0; i < 50; ++i) {
    Problem p{.n = draw(3), .h = draw(9), .w = draw(9), .c = draw(20), .k = draw(20), .bias = i % 2 == 0};
    p.residual = i % 3 == 0;
    if (i % 4 == 0) p.embedding = (p.first = draw(5) - 1) + p.k + draw(5) - 1;
    expect_scatter_agrees(make(p.str()), random());
    if (HasFailure()) FAIL() << test::rerun_command();
  }
}

double dot(const std::vector<double>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// y is linear in each of x, w and bias, so the gradient of <dy, y> with respect to one element of them is the change when
// that element grows by 1: <dy, y(unit vector)>, with the other factor as it is and no bias.
template <class Pass>
void expect_gradients(const Problem& p, std::uint64_t seed, const std::vector<int>& elements_of) {
  const Case backward = pass_of<Pass>().parse(p.str());
  const HostTensors given = fill(backward, Pattern::normal, seed);
  const bool to_x = std::is_same_v<Pass, conv3x3::Dgrad>;
  const std::vector<float>& dy = given.values[to_x ? 0 : 1];
  const std::vector<float>& other = given.values[to_x ? 1 : 0];
  const ExpectedOutputs gradients = reference_outputs(backward, given);
  ASSERT_EQ(gradients.size(), elements_of.size());
  for (std::size_t g = 0; g < gradients.size(); ++g) {
    for (int i = 0; i < std::ssize(gradients[g].value); ++i) {
      Problem forward = p;
      forward.bias = true;
      HostTensors inputs(conv3x3::Fprop::tensors(forward),
                         {std::vector<float>(p.pixels() * p.c), std::vector<float>(std::size_t{9} * p.k * p.c),
                          std::vector<float>(p.k)});
      inputs.values[elements_of[g]][i] = 1;
      if (elements_of[g] == 0) inputs.values[1] = other;
      if (elements_of[g] == 1) inputs.values[0] = other;
      const double expected = dot(reference_outputs(make(forward.str()), inputs).at(0).value, dy);
      const double bound = static_cast<double>(backward.reduction_length()) * 0x1p-52 * gradients[g].magnitude[i];
      ASSERT_LE(std::abs(gradients[g].value[i] - expected), bound) << backward.text << " output " << g << " at " << i;
    }
  }
}

TEST(Conv3x3Reference, GradientsAreThoseOfTheForwardFormula) {
  std::mt19937_64 random(test::seed());
  const auto draw = [&](int most) { return static_cast<int>(1 + random() % most); };
  for (int i = 0; i < 12; ++i) {
    const Problem p{.n = draw(2), .h = draw(5), .w = draw(5), .c = draw(5), .k = draw(5), .bias = i % 2 == 0};
    expect_gradients<conv3x3::Dgrad>(p, random(), {0});
    expect_gradients<conv3x3::Wgrad>(p, random(), p.bias ? std::vector<int>{1, 2} : std::vector<int>{1});
    if (HasFailure()) FAIL() << test::rerun_command();
  }
}

TEST(Conv3x3Reference, GradientsOfAHandComputedImage) {
  // dy = 1 2 in a row, weights 1 .. 9: dx[j] = sum over s of dy[j + 1 - s] w[1][s]; dw[1][s] = sum over q of
  // dy[q] x[q + s - 1]; the rows above and below are outside.
  const Case to_x = pass_of<conv3x3::Dgrad>().parse("n1 h1 w2 c1 k1");
  const HostTensors dy_and_w(to_x.tensors, {{1, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9}});
  EXPECT_EQ(reference_outputs(to_x, dy_and_w).at(0).value, (std::vector<double>{1 * 5 + 2 * 4, 1 * 6 + 2 * 5}));
  const Case to_w = pass_of<conv3x3::Wgrad>().parse("n1 h1 w2 c1 k1 bias");
  const ExpectedOutputs w = reference_outputs(to_w, HostTensors(to_w.tensors, {{10, 20}, {1, 2}}));
  EXPECT_EQ(w.at(0).value, (std::vector<double>{0, 0, 0, 2 * 10, 1 * 10 + 2 * 20, 1 * 20, 0, 0, 0}));
  EXPECT_EQ(w.at(1).value, (std::vector<double>{3}));
}

TEST(Reference, ACaseComputesEachPatternOnce) {
  CheckedCase c(make("n1 h3 w3 c2 k2"), 5);
  const ReferenceRun* normal = &c.run(Pattern::normal);
  const ReferenceRun* integer = &c.run(Pattern::integer);
  EXPECT_EQ(&c.run(Pattern::normal), normal);
  EXPECT_EQ(&c.run(Pattern::integer), integer);
  EXPECT_NE(normal->inputs["x"], integer->inputs["x"]);
  EXPECT_EQ(normal->inputs["x"], reference_run(*c, Pattern::normal, 5).inputs["x"]);
  EXPECT_NE(normal->inputs["x"], reference_run(*c, Pattern::normal, 6).inputs["x"]);
}

TEST(Reference, TensorsAreFoundByName) {
  const HostTensors inputs = fill(make("n1 h3 w3 c2 k2"), Pattern::normal, 1);
  EXPECT_EQ(inputs["w"].size(), 36u);
  EXPECT_EQ(inputs.find("bias"), nullptr);
  try {
    (void)inputs["v"];
    FAIL() << "there is no v";
  } catch (const Failure& error) {
    EXPECT_STREQ(error.what(), "no tensor 'v'; there are: x, w, y");
  }
}

}  // namespace
}  // namespace ladder

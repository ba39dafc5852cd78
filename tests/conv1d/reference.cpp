// The reference of conv1d against hand-computed numbers, and problem lines.
#include <gtest/gtest.h>

#include <cmath>

#include "core/check/check.h"
#include "core/error.h"
#include "dev/conv1d/conv1d.h"
#include "tests/support.h"

namespace ladder {
namespace {

using namespace conv1d;

template <class P>
Expected answer(const std::string& line, std::vector<std::vector<float>> inputs) {
  const Case c = pass_of<P>().parse(line);
  inputs.emplace_back();  // y
  return reference_outputs(c, HostTensors(c.tensors, std::move(inputs))).at(0);
}

TEST(Conv1dReference, HandComputedTaps) {
  // w = 1 2 3 on x = 1 2 3 4, zeros around: a cross-correlation.
  const Expected y = answer<Fprop>("n1 l4 c1 k1 taps3 bias", {{1, 2, 3, 4}, {1, 2, 3}, {100}});
  EXPECT_EQ(y.value, (std::vector<double>{108, 114, 120, 111}));
  EXPECT_EQ(y.magnitude, y.value) << "all terms are positive";
}

TEST(Conv1dReference, StrideTwoBeginsAPositionOutside) {
  // Windows of 3 begin at -1, 1 and 3; PyTorch's length is (5 + 2 - 3) / 2 + 1.
  const Expected y = answer<Fprop>("n1 l5 c1 k1 taps3 stride2", {{1, 2, 3, 4, 5}, {1, 10, 100}});
  EXPECT_EQ(y.value, (std::vector<double>{210, 432, 54}));
}

TEST(Conv1dReference, TransposedScattersEachPosition) {
  // conv_transpose1d(stride=2, padding=1): x[i] times w lands at 2i - 1 .. 2i + 2.
  const Expected y = answer<Fprop>("n1 l2 c1 k1 taps4 transposed", {{1, 5}, {1, 10, 100, 1000}});
  EXPECT_EQ(y.value, (std::vector<double>{10, 100 + 5 * 1, 1000 + 5 * 10, 5 * 100}));
}

TEST(Conv1dReference, ChannelsAreInnermostAndWeightsKtc) {
  // One tap: y[k] = w[k][0] x[0] + w[k][1] x[1], and the residual.
  const Expected y =
      answer<Fprop>("n1 l2 c2 k2 taps1 residual", {{1, 2, 3, 4}, {1, 10, -100, 1000}, {0.5f, 0, 0, 0.25f}});
  EXPECT_EQ(y.value, (std::vector<double>{21.5, 1900, 43, 3700.25}));
}

double mish(double z) { return z * std::tanh(std::log1p(std::exp(z))); }

TEST(Conv1dReference, BlockNormalisesOverLengthAndGroup) {
  // h = x + bias, of two channels and two positions 1 2 / 3 6: mean 3, variance 3.5. Rows of film have a pitch of 5.
  const Expected y = answer<Block>(
      "n1 l2 c2 k2 taps1 g1 mish film pitch5 residual",
      {{1, 1, 3, 5}, {1, 0, 0, 1}, {0, 1}, {2, 1}, {0, -1}, {1, 0, 10, 0}, {2, 1, 0, 20, 99}, {0, 0, 0.5f, 0}});
  const double rstd = 1 / std::sqrt(3.5 + double{kEpsilon});
  const std::vector<double> right = {3 * mish(2 * -2 * rstd) + 10, mish(-1 * rstd - 1) + 20, 3 * mish(0) + 10 + 0.5,
                                     mish(3 * rstd - 1) + 20};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(y.value[i], right[i], 1e-12) << i;
}

TEST(Conv1dReference, BlockJoinsItsTwoSources) {
  const std::vector<float> parameters[] = {{0, 0}, {1, 1}, {0, 0}};
  const std::vector<float> w = {1, 2, 3, -1, 1, 0.5f};
  const Expected split =
      answer<Block>("n1 l2 c3 k2 taps1 split1", {{1, 4}, {2, 3, 5, 7}, w, parameters[0], parameters[1], parameters[2]});
  const Expected joined =
      answer<Block>("n1 l2 c3 k2 taps1", {{1, 2, 3, 4, 5, 7}, w, parameters[0], parameters[1], parameters[2]});
  EXPECT_EQ(split.value, joined.value);
}

TEST(Conv1dProblem, Lengths) {
  EXPECT_EQ(Problem::parse("n1 l16 c8 k8 taps5").out_l(), 16);
  EXPECT_EQ(Problem::parse("n1 l16 c8 k8 taps3 stride2").out_l(), 8);
  EXPECT_EQ(Problem::parse("n1 l7 c8 k8 taps3 stride2").out_l(), 4);
  EXPECT_EQ(Problem::parse("n1 l7 c8 k8 taps4 transposed").out_l(), 14);
  EXPECT_EQ(Fprop::flops(Problem::parse("n2 l7 c8 k4 taps4 transposed")), 2.0 * 2 * 14 * 4 * 8 * 2);
}

TEST(Conv1dProblem, BadLinesAreRefused) {
  for (const char* line :
       {"n1 l4 c8 k8 taps2", "n1 l4 c8 k8 taps9", "n1 l4 c8 k8 taps5 stride2", "n1 l4 c8 k8 taps3 transposed",
        "n1 l4 c8 k8 taps4", "n1 l4 c8 k8 taps3 stride2 transposed", "n1 l4 c8 k8 taps5 g3",
        "n1 l4 c8 k8 taps5 film shift", "n1 l4 c8 k8 taps5 film pitch15", "n1 l4 c8 k8 taps5 pitch16",
        "n1 l4 c8 k8 taps5 split8", "n1 l4 c8 k8 taps5 tf32", "n9999 l9999 c999 k8 taps1"}) {
    EXPECT_THROW(Problem::parse(line), UsageError) << line;
  }
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Problem p = Problem::random(seed);
    EXPECT_EQ(Problem::parse(p.str()), p) << p.str();
  }
}

}  // namespace
}  // namespace ladder

// dev/policy/layout.h's network against counts from PyTorch, and the parsing of the problem's line.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "dev/policy/layout.h"

namespace ladder::policy {
namespace {

const std::string kPublished = "n1 l16 d2 dims256,512,1024 taps5 groups8 steps100 ddpm bf16";

// PyTorch's module of these sizes has 60,999,938 parameters without FiLM and the time step, and 14,336 FiLM outputs.
TEST(PolicyLayout, HasAllParametersOfThePublishedNetwork) {
  const Network network = network_of(Problem::parse(kPublished));
  EXPECT_EQ(network.count, 30);
  EXPECT_EQ(network.weights + network.vectors, 60'999'938);
  EXPECT_EQ(network.film_row, 14'336);
}

// Each parameter belongs to one layer: every part begins at the end of the previous part.
TEST(PolicyLayout, PartsLieSideBySide) {
  const Network network = network_of(Problem::parse("n2 l32 d3 dims8,16,24,40 taps3 groups4 steps2 ddim"));
  EXPECT_EQ(network.count, kMaxStages);
  int weights = 0;
  int vectors = 0;
  int film = 0;
  int values = 0;
  for (int i = 0; i < network.count; ++i) {
    const Stage& s = network.stages[i];
    if (s.residual == Residual::convolution) {
      EXPECT_EQ(s.residual_weights, weights);
      EXPECT_EQ(s.residual_bias, vectors);
      weights += s.k * network.stages[i - 1].c;
      vectors += s.k;
    }
    EXPECT_EQ(s.weights, weights);
    EXPECT_EQ(s.bias, vectors);
    EXPECT_EQ(s.value, values);
    if (s.film != kNone) {
      EXPECT_EQ(s.film, film);
      film += 2 * s.k;
    }
    weights += s.k * s.taps * s.c;
    vectors += s.k * (s.groups > 0 ? 3 : 1);
    values += s.k * s.out_l();
  }
  EXPECT_EQ(network.weights, weights);
  EXPECT_EQ(network.vectors, vectors);
  EXPECT_EQ(network.film_row, film);
  EXPECT_EQ(network.values, values);
}

// Lengths and widths of the levels, and the levels concatenated on the way up.
TEST(PolicyLayout, JoinsEachLevelButTheFirst) {
  const Network network = network_of(Problem::parse(kPublished));
  struct Joined {
    int l, source, joined, k;
  };
  std::vector<Joined> found;
  for (int i = 0; i < network.count; ++i) {
    const Stage& s = network.stages[i];
    if (s.joined_stage != kNone) found.push_back({s.l, s.c - s.joined, s.joined, s.k});
  }
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].l, 4);
  EXPECT_EQ(found[0].source, 1024);
  EXPECT_EQ(found[0].joined, 1024);
  EXPECT_EQ(found[0].k, 512);
  EXPECT_EQ(found[1].l, 8);
  EXPECT_EQ(found[1].source, 512);
  EXPECT_EQ(found[1].joined, 512);
  EXPECT_EQ(found[1].k, 256);
  EXPECT_EQ(network.stages[network.count - 1].out_l(), 16);
}

TEST(PolicyProblem, RefusesWhatCannotBe) {
  const auto refusal = [](const std::string& line) {
    try {
      Problem::parse(line);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto has = [&](const std::string& line, const std::string& words) {
    EXPECT_NE(refusal(line).find(words), std::string::npos) << refusal(line);
  };
  has("n1 l6 d2 dims8,16,24 taps5 groups8 steps1 ddpm", "multiples of 4 are right");
  has("n1 l8 d2 dims8,20 taps5 groups8 steps1 ddpm", "multiples of 8 are right");
  has("n1 l8 d2 dims12,24 taps5 groups4 steps1 ddpm", "multiple of 8");
  has("n1 l8 d2 dims8,,16 taps5 groups8 steps1 ddpm", "commas");
  has("n1 l8 d2 dims8,16, taps5 groups8 steps1 ddpm", "commas");
  has("n1 l64 d2 dims8,8,8,8,8 taps5 groups8 steps1 ddpm", "more than 4 levels");
  has("n1 l8 d2 dims8 taps4 groups8 steps1 ddpm", "taps");
  has("n1 l8 d2 dims8 taps5 groups8 steps1 ddpm ddim", "one of ddpm and ddim");
  has("n1 l8 d2 dims65536,65536 taps5 groups8 steps1 ddpm", "2^31 - 1");
  EXPECT_EQ(refusal(kPublished), "");
  EXPECT_EQ(Problem::parse(kPublished).str(), kPublished);
}

}  // namespace
}  // namespace ladder::policy

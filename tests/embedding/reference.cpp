// The reference of embedding against hand-computed numbers.
#include <gtest/gtest.h>

#include <cmath>

#include "core/check/check.h"
#include "core/error.h"
#include "dev/embedding/embedding.h"

namespace ladder {
namespace {

using namespace embedding;

std::vector<double> answer(const std::string& line, std::vector<float> t) {
  const Case c = pass_of<Timestep>().parse(line);
  return reference_outputs(c, HostTensors(c.tensors, {std::move(t)})).at(0).value;
}

TEST(EmbeddingReference, HandComputed) {
  // Frequencies 1 and 1/100, the second with its exponent rounded to fp32.
  const std::vector<double> y = answer("n2 c4", {0, 999});
  EXPECT_EQ(std::vector<double>(y.begin(), y.begin() + 4), (std::vector<double>{1, 1, 0, 0}));
  EXPECT_NEAR(y[4], std::cos(999.0), 1e-12);
  EXPECT_NEAR(y[5], std::cos(9.99), 1e-5);
  EXPECT_NEAR(y[6], std::sin(999.0), 1e-12);
  EXPECT_NEAR(y[7], std::sin(9.99), 1e-5);
}

TEST(EmbeddingReference, OddChannelsEndWithZero) {
  const std::vector<double> y = answer("n1 c5 real", {0.5f});
  EXPECT_NEAR(y[0], std::cos(0.5), 1e-12);
  EXPECT_NEAR(y[2], std::sin(0.5), 1e-12);
  EXPECT_EQ(y[4], 0);
}

TEST(EmbeddingProblem, BadLinesAreRefused) {
  for (const char* line : {"n1", "n1 c1", "n0 c4", "n1 c4 float"})
    EXPECT_THROW(Problem::parse(line), UsageError) << line;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Problem p = Problem::random(seed);
    EXPECT_EQ(Problem::parse(p.str()), p);
  }
}

}  // namespace
}  // namespace ladder

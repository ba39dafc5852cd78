// The reference of diffusion: its generator at published numbers, what its noise is like, and its gradient.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "core/check/check.h"
#include "core/error.h"
#include "dev/common/philox.h"
#include "dev/diffusion/diffusion.h"
#include "tests/support.h"

namespace ladder {
namespace {

using namespace diffusion;

// The known answers of Random123, kat_vectors.
TEST(Philox, KnownAnswers) {
  const auto words = [](std::uint64_t low, std::uint64_t high, std::uint64_t key) {
    const PhiloxWords r = philox4x32_10(low, high, key);
    return std::vector<std::uint32_t>(r.word, r.word + 4);
  };
  EXPECT_EQ(words(0, 0, 0), (std::vector<std::uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words(~0ull, ~0ull, ~0ull), (std::vector<std::uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words(0x85a308d3243f6a88, 0x0370734413198a2e, 0x299f31d0a4093822),
            (std::vector<std::uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

std::vector<double> noise(const std::string& line, float seed, float offset, float first = 0) {
  const Case c = pass_of<Noise>().parse(line);
  return reference_outputs(c, HostTensors(c.tensors, {{seed, offset, first}})).at(0).value;
}

// The first four numbers of seed 0 and offset 0 from the words above, the formula written out once more.
TEST(DiffusionReference, NoiseIsBoxMullerOfPhilox) {
  const std::vector<double> made = noise("n1 h2 w2 c1", 0, 0);
  const std::uint32_t word[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (int pair = 0; pair < 2; ++pair) {
    const double radius = std::sqrt(-2 * std::log((word[2 * pair] + 0.5) / 4294967296.0));
    const double angle = 8 * std::atan(1.0) * word[2 * pair + 1] / 4294967296.0;
    EXPECT_NEAR(made[2 * pair], radius * std::cos(angle), 1e-6);
    EXPECT_NEAR(made[2 * pair + 1], radius * std::sin(angle), 1e-6);
  }
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum / static_cast<double>(a.size());
}

TEST(DiffusionReference, NoiseIsNormalAndDoesNotRepeat) {
  const std::string line = "n4 h64 w64 c3";
  const std::vector<double> made = noise(line, 17, 5);
  const auto count = static_cast<double>(made.size());
  double mean = 0, fourth = 0;
  for (const double value : made) {
    mean += value / count;
    fourth += std::pow(value, 4) / count;
  }
  const double tolerance = 5 / std::sqrt(count);
  EXPECT_NEAR(mean, 0, tolerance);
  EXPECT_NEAR(correlation(made, made), 1, 1.5 * tolerance);
  EXPECT_NEAR(fourth, 3, 10 * tolerance);
  EXPECT_NEAR(correlation(made, noise(line, 17, 6)), 0, tolerance) << "of the next step";
  EXPECT_NEAR(correlation(made, noise(line, 18, 5)), 0, tolerance) << "of another seed";
  const std::size_t image = made.size() / 4;
  const std::vector<double> first(made.begin(), made.begin() + image);
  EXPECT_NEAR(correlation(first, {made.begin() + image, made.begin() + 2 * image}), 0, 2 * tolerance) << "of images";
}

// Images of whole quads and not: number `first` of a stream is the same image in each batch.
TEST(DiffusionReference, AnImagesNoiseFollowsFromItsNumber) {
  for (const std::string image : {"h2 w2 c3", "h1 w1 c3", "h3 w3 c1"}) {
    const std::vector<double> together = noise("n3 " + image, 17, 5, 4);
    std::vector<double> alone;
    for (const float first : {4.0f, 5.0f, 6.0f}) {
      const std::vector<double> one = noise("n1 " + image, 17, 5, first);
      alone.insert(alone.end(), one.begin(), one.end());
    }
    EXPECT_EQ(alone, together) << image;
    const std::set<double> distinct(together.begin(), together.end());
    EXPECT_EQ(distinct.size(), together.size()) << image;
  }
}

TEST(DiffusionReference, HandComputedLoss) {
  const Case c = pass_of<Loss>().parse("n2 h1 w2 c1");
  const ExpectedOutputs r = reference_outputs(c, HostTensors(c.tensors, {{1, 2, 3, 4}, {0, 0, 1, 8}}));
  EXPECT_EQ(r[0].value, (std::vector<double>{0.5, 1, 1, -2}));
  EXPECT_EQ(r[1].value, (std::vector<double>{2.5, 10}));
  EXPECT_EQ(r[2].value, (std::vector<double>{6.25}));
}

TEST(DiffusionReference, LossGradientIsTheSlope) {
  const Case c = pass_of<Loss>().parse("n2 h2 w3 c1");
  HostTensors inputs = fill(c, Pattern::normal, test::seed());
  const std::vector<double> dpred = reference_outputs(c, inputs)[0].value;
  for (std::size_t i = 0; i < dpred.size(); ++i) {
    const float middle = std::round(inputs["pred"][i] * 1024) / 1024;
    inputs["pred"][i] = middle;
    const double slope = reference_outputs(c, inputs)[0].value[i];
    const auto at = [&](float value) {
      inputs["pred"][i] = value;
      return reference_outputs(c, inputs)[2].value[0];
    };
    EXPECT_NEAR((at(middle + 0.125f) - at(middle - 0.125f)) / 0.25, slope, 1e-12) << i;
    inputs["pred"][i] = middle;
  }
}

TEST(DiffusionProblem, BadLinesAreRefused) {
  for (const char* line :
       {"n1 h1 w1", "n1 h1 w1 c1 steps0", "n1 h1 w1 c1 steps1001", "n1 h1 w1 c1 eta101", "n70000 h1 w1 c1"}) {
    EXPECT_THROW(Problem::parse(line), UsageError) << line;
  }
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Problem p = Problem::random(seed);
    EXPECT_EQ(Problem::parse(p.str()), p);
  }
}

}  // namespace
}  // namespace ladder

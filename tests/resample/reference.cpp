// The reference of resample against hand-computed numbers, and its gradients against their forward passes.
#include <gtest/gtest.h>

#include "core/check/check.h"
#include "core/error.h"
#include "dev/resample/resample.h"
#include "tests/support.h"

namespace ladder {
namespace {

using namespace resample;

template <class P>
std::vector<double> answer(const std::string& line, std::vector<float> input) {
  const Case c = pass_of<P>().parse(line);
  return reference_outputs(c, HostTensors(c.tensors, {std::move(input)})).at(0).value;
}

TEST(ResampleReference, HandComputed) {
  // Two channels. The larger image is 2x4, the smaller 1x2.
  const std::vector<float> large = {1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60, 7, 70, 8, 80};
  EXPECT_EQ(answer<Pool>("n1 h2 w4 c2", large), (std::vector<double>{3.5, 35, 5.5, 55}));
  EXPECT_EQ(answer<UpsampleBackward>("n1 h2 w4 c2", large), (std::vector<double>{14, 140, 22, 220}));
  EXPECT_EQ(answer<Upsample>("n1 h2 w4 c2", {1, 2, 3, 4}),
            (std::vector<double>{1, 2, 1, 2, 3, 4, 3, 4, 1, 2, 1, 2, 3, 4, 3, 4}));
  EXPECT_EQ(answer<PoolBackward>("n1 h2 w4 c2", {4, 8, 12, 16}),
            (std::vector<double>{1, 2, 1, 2, 3, 4, 3, 4, 1, 2, 1, 2, 3, 4, 3, 4}));
}

double dot(const std::vector<double>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// A linear map's gradient is its transpose f': <f(x), dy> = <x, f'(dy)>.
template <class Forward, class Backward>
void expect_transposes(const std::string& line) {
  const std::vector<float> x = fill(pass_of<Forward>().parse(line), Pattern::normal, test::seed()).values[0];
  const std::vector<float> dy = fill(pass_of<Backward>().parse(line), Pattern::normal, test::seed() + 1).values[0];
  EXPECT_NEAR(dot(answer<Forward>(line, x), dy), dot(answer<Backward>(line, dy), x), 1e-9 * x.size()) << line;
}

TEST(ResampleReference, GradientsAreTransposes) {
  for (const char* line : {"n2 h4 w6 c3", "n1 h10 w2 c7", "n3 h2 w8 c4"}) {
    expect_transposes<Pool, PoolBackward>(line);
    expect_transposes<Upsample, UpsampleBackward>(line);
  }
}

TEST(ResampleProblem, BadLinesAreRefused) {
  for (const char* line : {"n1 h3 w4 c1", "n1 h4 w5 c1", "n1 h0 w4 c1", "n1 h4 w4", "n9999 h9998 w9998 c1"}) {
    EXPECT_THROW(Problem::parse(line), UsageError) << line;
  }
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Problem p = Problem::random(seed);
    EXPECT_EQ(Problem::parse(p.str()), p);
  }
}

}  // namespace
}  // namespace ladder

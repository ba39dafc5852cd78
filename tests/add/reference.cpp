// The reference of add against hand-computed numbers, and its gradient against the pass that it belongs to.
#include <gtest/gtest.h>

#include "core/check/check.h"
#include "core/error.h"
#include "dev/add/add.h"
#include "tests/support.h"

namespace ladder {
namespace {

using namespace add;

template <class P>
Expected answer(const std::string& line, std::vector<std::vector<float>> inputs) {
  const Case c = pass_of<P>().parse(line);
  return reference_outputs(c, HostTensors(c.tensors, std::move(inputs))).at(0);
}

TEST(AddReference, HandComputed) {
  EXPECT_EQ(answer<Residual>("n1 h1 w2 c1", {{1, 2}, {10, -20}}).value, (std::vector<double>{11, -18}));
  EXPECT_EQ(answer<Residual>("n1 h1 w2 c1", {{1, 2}, {10, -20}}).magnitude, (std::vector<double>{11, 22}));
  // Two images of two pixels of two channels.
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(answer<Embedding>("n2 h1 w2 c2", {x, {10, 20, 30, 40}}).value,
            (std::vector<double>{11, 22, 13, 24, 35, 46, 37, 48}));
  EXPECT_EQ(answer<EmbeddingBackward>("n2 h1 w2 c2", {x}).value, (std::vector<double>{4, 6, 12, 14}));
}

// The loss <y, dy> is linear in e, so that its slope is the gradient.
TEST(AddReference, EmbeddingsGradientIsTheSlope) {
  const std::string line = "n2 h3 w4 c5";
  const Case c = pass_of<Embedding>().parse(line);
  HostTensors inputs = fill(c, Pattern::normal, test::seed());
  const std::vector<float> dy =
      fill(pass_of<EmbeddingBackward>().parse(line), Pattern::normal, test::seed() + 1).values[0];
  const auto loss = [&] {
    const Expected y = reference_outputs(c, inputs).at(0);
    double sum = 0;
    for (std::size_t i = 0; i < dy.size(); ++i) sum += y.value[i] * dy[i];
    return sum;
  };
  const Expected de = answer<EmbeddingBackward>(line, {dy});
  const double before = loss();
  for (std::size_t i = 0; i < de.value.size(); ++i) {
    const float kept = inputs["e"][i];
    inputs["e"][i] = kept + 1;
    EXPECT_NEAR((loss() - before) / (double{inputs["e"][i]} - kept), de.value[i], 1e-9) << i;
    inputs["e"][i] = kept;
  }
}

TEST(AddProblem, BadLinesAreRefused) {
  for (const char* line : {"n1 h3 w4", "n70000 h1 w1 c1", "n1 h4 w4 c2 k2", "n999 h999 w999 c4"}) {
    EXPECT_THROW(Problem::parse(line), UsageError) << line;
  }
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Problem p = Problem::random(seed);
    EXPECT_EQ(Problem::parse(p.str()), p);
  }
}

}  // namespace
}  // namespace ladder

// The reference of concat against hand-computed numbers, and its gradient against the pass that it belongs to.
#include <gtest/gtest.h>

#include "core/check/check.h"
#include "core/error.h"
#include "dev/concat/concat.h"
#include "tests/support.h"

namespace ladder {
namespace {

using namespace concat;

template <class P>
ExpectedOutputs answers(const std::string& line, std::vector<std::vector<float>> inputs) {
  const Case c = pass_of<P>().parse(line);
  return reference_outputs(c, HostTensors(c.tensors, std::move(inputs)));
}

TEST(ConcatReference, HandComputed) {
  const auto joined = answers<Join>("n1 h1 w2 c2 k1", {{1, 2, 3, 4}, {10, 20}});
  EXPECT_EQ(joined[0].value, (std::vector<double>{1, 2, 10, 3, 4, 20}));
  const auto apart = answers<Split>("n1 h1 w2 c2 k1", {{1, 2, 10, 3, 4, 20}});
  EXPECT_EQ(apart[0].value, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(apart[1].value, (std::vector<double>{10, 20}));
  const auto summed = answers<SplitAdd>("n1 h1 w2 c2 k1", {{1, 2, 10, 3, 4, 20}, {-100, 200}});
  EXPECT_EQ(summed[0].value, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(summed[1].value, (std::vector<double>{-90, 220}));
  EXPECT_EQ(summed[1].magnitude, (std::vector<double>{110, 220}));
}

TEST(ConcatReference, SplittingUndoesJoining) {
  const Case c = pass_of<Join>().parse("n2 h3 w5 c7 k4");
  const HostTensors inputs = fill(c, Pattern::normal, test::seed());
  const ExpectedOutputs y = reference_outputs(c, inputs);
  const ExpectedOutputs parts =
      answers<Split>("n2 h3 w5 c7 k4", {std::vector<float>(y[0].value.begin(), y[0].value.end())});
  for (int side = 0; side < 2; ++side) {
    EXPECT_EQ(std::vector<float>(parts[side].value.begin(), parts[side].value.end()), inputs.values[side]);
  }
}

TEST(ConcatProblem, BadLinesAreRefused) {
  for (const char* line : {"n1 h3 w4 c1", "n1 h4 w5 c0 k2", "n1 h4 w4 c2 k2 silu", "n999 h999 w999 c2 k2"}) {
    EXPECT_THROW(Problem::parse(line), UsageError) << line;
  }
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Problem p = Problem::random(seed);
    EXPECT_EQ(Problem::parse(p.str()), p);
  }
}

}  // namespace
}  // namespace ladder

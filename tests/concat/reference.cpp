// The reference of concat against hand-computed numbers.
#include <gtest/gtest.h>

#include "core/check/check.h"
#include "core/error.h"
#include "dev/concat/concat.h"

namespace ladder {
namespace {

using namespace concat;

TEST(ConcatReference, HandComputed) {
  const Case c = pass_of<Join>().parse("n1 h1 w2 c2 k1");
  const ExpectedOutputs joined = reference_outputs(c, HostTensors(c.tensors, {{1, 2, 3, 4}, {10, 20}}));
  EXPECT_EQ(joined[0].value, (std::vector<double>{1, 2, 10, 3, 4, 20}));
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

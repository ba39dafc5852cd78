// Inputs as they are drawn. Checks that launch a kernel again on nearly the same inputs rely on the rest being the same.
#include <gtest/gtest.h>

#include <cstddef>

#include "core/check/check.h"
#include "core/registry.h"
#include "dev/policy/policy.h"
#include "tests/support.h"

namespace ladder::policy {
namespace {

TEST(PolicyInputs, AreTheSameWhenDerivedAgain) {
  for (const char* text :
       {"n2 l16 d2 dims16,24,32 taps5 groups8 steps10 ddpm", "n1 l4 d3 dims8 taps1 groups4 steps2 ddim"}) {
    CheckedCase c(pass_of<Step>().parse(text), test::seed());
    const HostTensors& once = c.run(Pattern::normal).inputs;
    HostTensors twice = once;
    c->pass->derive(*c, twice);
    for (std::size_t i = 0; i < once.values.size(); ++i) {
      EXPECT_EQ(once.values[i], twice.values[i]) << text << ": " << c->tensors[i].name;
    }
  }
}

}  // namespace
}  // namespace ladder::policy

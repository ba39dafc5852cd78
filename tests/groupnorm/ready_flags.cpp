// Ready flags of groupnorm/backward v12 and later. The first kernel leaves sums in the workspace, each with a ready
// flag; the second kernel takes the sums and clears both. A launch on the workspace of an earlier launch must see
// none of its sums.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <vector>

#include "core/backend.h"
#include "core/check/check.h"
#include "core/registry.h"
#include "core/shapes.h"
#include "dev/groupnorm/groupnorm.h"
#include "tests/support.h"

namespace ladder {
namespace {

struct Launch {
  int version;
  const char* problem;
};

void PrintTo(const Launch& launch, std::ostream* os) { *os << 'v' << launch.version << ' ' << launch.problem; }

class GroupnormReadyFlags : public testing::TestWithParam<Launch> {
 protected:
  void SetUp() override {
    if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
    if (backend::device().arch < version_.def.min_arch) GTEST_SKIP() << "an older GPU";
  }

  void launch(DeviceTensors& tensors) const {
    kernel_.bind(tensors.pointers(), tensors.workspace())(backend::check_stream());
    backend::synchronize();
  }

  const Version& version_ = find_version(pass_of<groupnorm::Backward>(), GetParam().version);
  Case case_ = version_.pass->parse(GetParam().problem);
  Kernel kernel_ = plan(version_, case_);
};

TEST_P(GroupnormReadyFlags, AreTakenAway) {
  const std::size_t bytes = kernel_.workspace_bytes;
  DeviceTensors tensors(case_, fill(case_, Pattern::normal, test::seed()), bytes);
  launch(tensors);
  std::vector<unsigned char> left(bytes, 1);
  backend::copy_out(left.data(), tensors.workspace(), bytes);
  EXPECT_TRUE(std::all_of(left.begin(), left.end(), [](unsigned char byte) { return byte == 0; }));
}

TEST_P(GroupnormReadyFlags, OfAnotherLaunchAreNotTaken) {
  constexpr int kLaunches = 20;
  const HostTensors inputs[2] = {fill(case_, Pattern::normal, test::seed()),
                                 fill(case_, Pattern::normal, test::seed() + 1)};
  std::vector<std::vector<float>> alone[2];
  for (int i = 0; i < 2; ++i) {
    DeviceTensors tensors(case_, inputs[i], kernel_.workspace_bytes);
    launch(tensors);
    alone[i] = tensors.outputs();
  }
  ASSERT_NE(alone[0], alone[1]);
  DeviceTensors tensors(case_, inputs[0], kernel_.workspace_bytes);
  for (int i = 0; i < kLaunches; ++i) {
    tensors.refill(inputs[i % 2]);
    launch(tensors);
    ASSERT_EQ(tensors.outputs(), alone[i % 2]) << "launch " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Problems, GroupnormReadyFlags,
                         testing::Values(Launch{12, "n5 h8 w8 c64 g32 silu fp32"},
                                         Launch{12, "n3 h32 w32 c64 g32 silu bf16"},
                                         Launch{13, "n5 h8 w8 c64 g32 silu fp16"},
                                         Launch{13, "n3 h32 w32 c64 g32 silu bf16"},
                                         Launch{14, "n5 h8 w8 c64 g32 silu embedding64 first0 fp16"},
                                         Launch{14, "n3 h32 w32 c64 g32 silu addend1 bf16"}));

}  // namespace
}  // namespace ladder

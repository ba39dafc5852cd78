// Versions that replace promoted ones in a program: held back in TF32, or chosen with --use.
#include "runtime/chosen_versions.h"

#include <gtest/gtest.h>

#include "dev/conv3x3/conv3x3.h"
#include "tests/support.h"

namespace ladder {
namespace {

std::string wgrad_of(Dtype dtype, const std::string& use = "") {
  const conv3x3::Problem problem{.n = 2, .h = 8, .w = 8, .c = 64, .k = 64, .bias = true, .dtype = dtype};
  return chosen_versions(dtype, use).choose(case_of<conv3x3::Wgrad>(problem)).version->label();
}

TEST(ChosenVersions, AreHeldBackInTf32UnlessTheyAreNamed) {
  EXPECT_EQ(wgrad_of(Dtype::tf32), "v05_mma_halo");
  EXPECT_EQ(wgrad_of(Dtype::tf32, "conv3x3/wgrad=v12"), "v12_transposed_dy");
  for (const Dtype dtype : {Dtype::bf16, Dtype::f32}) EXPECT_TRUE(chosen_versions(dtype, "").used().empty());
  EXPECT_EQ(wgrad_of(Dtype::bf16, "conv3x3/wgrad=v07"), "v07_wgmma_filter_row");
}

}  // namespace
}  // namespace ladder

// Activations where exponentials overflow and where z is no number, forward and backward, by every version: as the formula in
// double precision, or not finite where that is not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "core/backend.h"
#include "core/check/check.h"
#include "dev/groupnorm/groupnorm.h"
#include "tests/support.h"

namespace ladder {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kExtremes[] = {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity, 1e15f, -1e15f, 90, -90};

// A group of one element is normalised to 0, so that z is beta.
HostTensors inputs_of(const Case& c) {
  HostTensors inputs = fill(c, Pattern::normal, test::seed());
  std::vector<float>& beta = inputs["beta"];
  for (std::size_t i = 0; i < beta.size(); ++i) beta[i] = kExtremes[i % std::size(kExtremes)];
  return inputs;
}

// Output number `tensor` of every version: y, or dbeta, which is dy times the activation's derivative.
void check_extremes(const Pass& pass, const std::string& activation, std::size_t tensor) {
  const Case c = pass.parse("n1 h1 w1 c64 g64 " + activation);
  const HostTensors inputs = inputs_of(c);
  const Expected expected = reference_outputs(c, inputs).at(tensor);
  int num_checked = 0;
  for (const Version* v : versions_of(pass)) {
    if (!why_not(*v, c).empty()) continue;
    ++num_checked;
    const Kernel kernel = plan(*v, c);
    DeviceTensors tensors(c, inputs, kernel.workspace_bytes);
    kernel.bind(tensors.pointers(), tensors.workspace())(backend::check_stream());
    const std::vector<float> output = tensors.outputs().at(tensor);
    for (std::size_t i = 0; i < output.size(); ++i) {
      const std::string where = fmt::format("{} {} {} of {}", pass.path(), v->label(), activation, inputs["beta"][i]);
      if (std::isfinite(expected.value[i])) {
        EXPECT_NEAR(output[i], expected.value[i], 1e-4 * std::abs(expected.value[i]) + 1e-4) << where;
      } else {
        EXPECT_FALSE(std::isfinite(output[i])) << where << " must be " << expected.value[i];
      }
    }
  }
  EXPECT_GT(num_checked, 0);
}

TEST(GroupnormExtremes, ActivationsAreAsPyTorchs) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  for (const char* activation : {"", "relu", "silu", "gelu", "gelu-tanh", "mish"}) {
    check_extremes(pass_of<groupnorm::Forward>(), activation, 0);
    check_extremes(pass_of<groupnorm::Backward>(), activation, 2);
  }
}

}  // namespace
}  // namespace ladder

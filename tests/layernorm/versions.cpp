// Rows with known answers for which the checks on random inputs are blind: rows of one element or one value, and
// shifted rows. Every version must get them right.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/backend.h"
#include "core/check/check.h"
#include "core/registry.h"
#include "dev/layernorm/layernorm.h"
#include "tests/support.h"

namespace ladder {
namespace {

Case forward(const std::string& line) { return pass_of<layernorm::Forward>().parse(line); }

// Returns y, mean and rstd.
std::vector<std::vector<float>> outputs(const Version& v, const Case& c, const HostTensors& inputs) {
  const Kernel kernel = plan(v, c);
  DeviceTensors tensors(c, inputs, kernel.workspace_bytes);
  kernel.bind(tensors.pointers(), tensors.workspace())(backend::check_stream());
  backend::synchronize();
  return tensors.outputs();
}

// Call body(version) for every version that can run the case.
void for_each_version(const Case& c, const auto& body) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  int ran = 0;
  for (const Version* v : versions_of(*c.pass)) {
    SCOPED_TRACE(v->label() + ' ' + c.text);
    if (why_not(*v, c).empty()) body(*v), ++ran;
  }
  EXPECT_GT(ran, 1);
}

TEST(LayernormVersions, ARowOfOneValueIsBeta) {
  for (const char* line : {"m3 n1", "m2 n31", "m2 n256", "m2 n1000", "m1 n8196"}) {
    const Case c = forward(line);
    const auto& p = problem_of<layernorm::Forward>(c);
    HostTensors inputs = fill(c, Pattern::normal, test::seed());
    for (int row = 0; row < p.m; ++row) {
      for (int i = 0; i < p.n; ++i) inputs["x"][row * p.n + i] = 3.0f + 4096.0f * static_cast<float>(row);
    }
    for_each_version(c, [&](const Version& v) {
      const std::vector<std::vector<float>> out = outputs(v, c, inputs);
      for (int row = 0; row < p.m; ++row) {
        EXPECT_NEAR(out[1][row], 3 + 4096 * row, 1e-6 * 4096 * row);
        EXPECT_NEAR(out[2][row], 1 / std::sqrt(1e-5), 1e-2);
        for (int i = 0; i < p.n; ++i) ASSERT_NEAR(out[0][row * p.n + i], inputs["beta"][i], 1e-6) << row << ' ' << i;
      }
    });
  }
}

// The shift by 4096 is exact: the values are multiples of 2^-10 below 32.
TEST(LayernormVersions, AShiftOfTheRowsChangesTheirMeansAlone) {
  for (const char* line : {"m2 n77", "m2 n512", "m1 n9216"}) {
    const Case c = forward(line);
    HostTensors inputs = fill(c, Pattern::normal, test::seed());
    for (float& x : inputs["x"]) x = std::round(x * 1024) / 1024;
    HostTensors shifted = inputs;
    for (float& x : shifted["x"]) x += 4096;
    for_each_version(c, [&](const Version& v) {
      const std::vector<std::vector<float>> plain = outputs(v, c, inputs);
      const std::vector<std::vector<float>> moved = outputs(v, c, shifted);
      for (std::size_t i = 0; i < plain[0].size(); ++i) ASSERT_NEAR(moved[0][i], plain[0][i], 2e-5) << i;
      for (std::size_t i = 0; i < plain[1].size(); ++i) EXPECT_NEAR(moved[1][i], plain[1][i] + 4096, 1e-3);
      for (std::size_t i = 0; i < plain[2].size(); ++i) EXPECT_NEAR(moved[2][i], plain[2][i], 1e-5);
    });
  }
}

}  // namespace
}  // namespace ladder

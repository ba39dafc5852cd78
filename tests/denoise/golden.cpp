// The tiny policy against float64 numbers of reference/pytorch/policy_golden.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/paths.h"
#include "policy/policy.h"
#include "runtime/chosen_versions.h"
#include "tests/denoise/network.h"
#include "tests/denoise/tiny.h"

namespace ladder::denoise {
namespace {

using nlohmann::json;
using test::farthest;
using test::flat;
using test::kFp32Limit;

json golden() {
  std::ifstream in(source_dir() + "/tests/golden/policy_tiny.json");
  return json::parse(in);
}

TEST(Golden, NamesShapesAndMadeUpWeightsAreThoseOfPyTorch) {
  const json told = golden();
  const PolicyFile tiny = tiny_policy();
  const auto tensors = nn::published_tensors(tiny.network);
  ASSERT_EQ(tensors.size(), told["parameters"].size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const json& expected = told["parameters"][i];
    EXPECT_EQ(tensors[i].name, expected["name"].get<std::string>());
    EXPECT_EQ(json(tensors[i].shape), expected["shape"]) << tensors[i].name;
    const std::vector<float>& values = tiny.weights.at(tensors[i].name);
    for (int j : {0, 1}) EXPECT_EQ(values[j], expected["first_values"][j].get<float>()) << tensors[i].name;
  }
}

// Check the double-precision reference that the other tests use. It has no FiLM table, no packing and no channels-last
// layout.
TEST(Golden, TheReferenceInDoublePredictsTheSame) {
  const json told = golden();
  const PolicyFile tiny = tiny_policy();
  const std::vector<double> initial = flat(told["initial"][1]);
  const std::vector<double> observation = flat(told["observation"][1]);
  const std::vector<double> found = test::predicted(tiny.network, tiny.weights, initial, told["ddpm"]["t"][0],
                                                    {observation.begin(), observation.end()});
  EXPECT_LT(farthest(found, flat(told["ddpm"]["prediction"][0][1])), 1e-11);
}

// Parameters: scheduler, and what a step is made of (--use).
class Trajectory : public test::NeedsDevice,
                   public testing::WithParamInterface<std::tuple<const char*, std::string>> {};

TEST_P(Trajectory, EndsWhereFloat64Does) {
  const json told = golden();
  const auto& [scheduler, kind_of_step] = GetParam();
  const json& run = told[scheduler];
  const auto count = static_cast<int>(run["t"].size());
  const PolicyFile tiny = tiny_policy();
  std::vector<std::string> notes;
  SamplingSchedule steps(scheduler_of(tiny.scheduler, scheduler, notes), count);
  EXPECT_EQ(json(steps.timesteps), run["t"]);
  const Promotions promotions = chosen_versions(Dtype::f32, "policy/step=" + kind_of_step);
  const auto floats = [](const std::vector<double>& values) {
    return std::vector<float>(values.begin(), values.end());
  };
  const auto answer = [&](const SamplingSchedule& some) {
    Policy policy({.samples = 3, .given_noise = true}, tiny, some, promotions);
    const std::vector<double> noise = flat(told["noise"]);
    const std::size_t floats_per_step = noise.size() / told["noise"].size();
    policy.set_noise(floats(flat(told["initial"])),
                     floats({noise.begin(), noise.begin() + some.rows.size() * floats_per_step}));
    const auto actions = policy.answer(floats(flat(told["observation"])), 0, 0);
    return std::vector<double>(actions.begin(), actions.end());
  };
  EXPECT_LT(farthest(answer(steps), flat(run["trajectory"].back())), kFp32Limit);
  steps.first_only();
  EXPECT_LT(farthest(answer(steps), flat(run["trajectory"][0])), kFp32Limit);
}

INSTANTIATE_TEST_SUITE_P(Of, Trajectory,
                         testing::Combine(testing::Values("ddpm", "ddim"), testing::ValuesIn(test::kinds_of_steps())),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                         });

}  // namespace
}  // namespace ladder::denoise

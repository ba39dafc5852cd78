// When a step is one kernel, the operation policy/step, and when the network's operations; and that a person is told why.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "core/cluster_shape.h"
#include "core/error.h"
#include "policy/one_kernel_step.h"
#include "policy/policy.h"
#include "runtime/chosen_versions.h"
#include "tests/denoise/tiny.h"
#include "tests/files.h"

namespace ladder::denoise {
namespace {

using Floats = std::vector<float>;

// Versions that a card refuses and that no problem suits.
constexpr const char* kRefused = "v90_more_blocks_than_fit";
constexpr const char* kUnsuited = "v91_suits_none";

std::vector<KernelPlan<policy::Step>> too_many_blocks(const policy::Problem&) {
  const auto bind = [](const policy::Step::Tensors&, void*) -> BoundLaunch {  // as bind_launch() does
    throw Failure(cooperative_refusal(dim3(133), dim3(1), 132));
  };
  return {{.name = "too many", .bind = bind}};
}

const bool kRegistered =
    register_version<policy::Step>("a/v90_more_blocks_than_fit.cu",
                                   {.plans = too_many_blocks, .plan_names = {"too many"}, .dtypes = {Dtype::f32}}) &&
    register_version<policy::Step>("a/v91_suits_none.cu",
                                   {.plans = too_many_blocks,
                                    .plan_names = {"too many"},
                                    .dtypes = {Dtype::f32},
                                    .supports = [](const policy::Problem&) { return "shared memory is too small"; }});

std::string line(const policy::Problem& problem, const std::string& version) {
  return "policy/step  " + problem.str() + "  " + version + "  20.4 us warm  123 cold  -  -  457b462\n";
}

class OneKernel : public test::NeedsDevice {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kRegistered);
    NeedsDevice::SetUp();
    file_.network.dims = {32};
    file_.weights = nn::made_up_weights(file_.network);
  }

  SamplingSchedule steps() const {
    std::vector<std::string> notes;
    return {scheduler_of(file_.scheduler, "ddpm", notes), 2};
  }

  Promotions recorded(const std::string& text) const {
    const std::filesystem::path table = scratch_ / "table.txt";
    ladder::test::put(table, text);
    return Promotions::load(table);
  }

  StepChoice choice(const Promotions& promotions, int samples = 1, Dtype dtype = Dtype::f32) const {
    return choose_step(file_.network, steps(), dtype, samples, promotions);
  }
  std::string reason(const std::string& use) const {
    Promotions promotions = recorded("");
    promotions.use(use);
    const StepChoice made = choice(promotions);
    return made.one_kernel ? "one kernel" : made.reason;
  }

  static std::int64_t operations_of(const Policy& policy, const std::string& layer) {
    return std::ranges::count_if(policy.program().tape().operations(),
                                 [&](const Operation& operation) { return operation.problem.pass->layer == layer; });
  }

  ladder::test::Scratch scratch_;
  PolicyFile file_ = tiny_policy();
};

TEST_F(OneKernel, RunsInThePlaceOfAllOperationsOfAStep) {
  const Promotions with = chosen_versions(Dtype::f32, "policy/step=v01");
  const Policy policy({}, file_, steps(), with);
  EXPECT_EQ(policy.step(), "a step is one kernel, policy/step v01_naive: --use");
  EXPECT_EQ(operations_of(policy, "policy"), 2);
  EXPECT_EQ(operations_of(policy, "conv1d"), 0);
  EXPECT_EQ(operations_of(policy, "diffusion"), 2);  // the noise

  const Promotions without = chosen_versions(Dtype::f32, "policy/step=off");
  const Policy network({}, file_, steps(), without);
  EXPECT_EQ(network.step(), "a step is the network's operations, one after the other: --use policy/step=off");
  EXPECT_EQ(operations_of(network, "policy"), 0);
  EXPECT_EQ(operations_of(network, "conv1d"), 2 * 11);
}

TEST_F(OneKernel, EveryVersionThatCanIsTakenByName) {
  for (const std::string& kind : test::kinds_of_steps()) {
    if (kind == "off") continue;
    const Promotions promotions = chosen_versions(Dtype::bf16, "policy/step=" + kind);
    const StepChoice made = choice(promotions, 3, Dtype::bf16);  // which all of them have
    EXPECT_TRUE(made.one_kernel) << made.str();
    EXPECT_EQ(made.version, kind);
  }
}

TEST_F(OneKernel, RecordsDecideWithoutAName) {
  policy::Problem problem{.n = 1, .l = 16, .d = 2, .dims = {32}, .steps = 100};
  const std::string of_one = line(problem, "v01_naive");
  problem.n = 3;
  const std::string of_three = line(problem, "v02_weight_stream");

  EXPECT_EQ(choice(recorded("")).str(),
            "a step is the network's operations, one after the other: no record of policy/step in fp32");
  const StepChoice one = choice(recorded(of_one));
  ASSERT_TRUE(one.one_kernel);
  EXPECT_EQ(one.str(),
            "a step is one kernel, policy/step v01_naive: nearest: n1 l16 d2 dims32 taps5 groups8 steps100 "
            "ddpm fp32");
  EXPECT_EQ(choice(recorded(of_one), 1, Dtype::bf16).reason, "no record of policy/step in bf16");
  EXPECT_EQ(choice(recorded(of_one), 3).reason, "no record of policy/step in fp32 for 3 observations");
  EXPECT_EQ(choice(recorded(of_one + of_three), 3).version, "v02_weight_stream");
  EXPECT_EQ(choice(recorded(of_one + of_three), 4).reason, "no record of policy/step in fp32 for 4 observations");
  problem.n = 1;
  EXPECT_EQ(choice(recorded(line(problem, kUnsuited))).reason,
            std::string("policy/step ") + kUnsuited + " cannot: shared memory is too small");
}

TEST_F(OneKernel, WhatItCannotIsTheNetworksAndSaid) {
  const nn::Unet1dConfig fits = file_.network;
  EXPECT_EQ(reason("policy/step=v02"), "one kernel");
  EXPECT_EQ(reason("policy/step=v91"),
            std::string("--use policy/step ") + kUnsuited + " cannot: shared memory is too small");
  file_.network.horizon = 1024;
  EXPECT_EQ(reason("policy/step=v02"),
            "--use policy/step v02_weight_stream cannot: a stage's input and its sums must fit an SM's shared memory");
  EXPECT_EQ(reason("policy/step=v01"), "one kernel");
  file_.network = fits;
  file_.network.scale = false;
  EXPECT_EQ(reason("policy/step=v01"),
            "policy/step has none with a condition that shifts channels and does not scale them");
  file_.network = fits;
  file_.network.dims = {48};
  EXPECT_EQ(reason("policy/step=v01"), "policy/step has none with channels of a level that are no multiple of 32");
  file_.network.dims = {32, 32, 32, 32, 32};
  EXPECT_EQ(reason("policy/step=v01"), "policy/step has none with more than 4 levels");
  file_.network.dims = {65536};
  EXPECT_NE(reason("policy/step=v01").find("a tensor of more than 2^31 - 1 elements"), std::string::npos);
}

TEST_F(OneKernel, OfARefusedLaunchTheNetworkAnswers) {
  const Floats observation(20, 0.5f);
  const auto answer = [&](Policy& policy) {
    const auto actions = policy.answer(observation, 5, 0);
    return Floats(actions.begin(), actions.end());
  };
  const Promotions refused = chosen_versions(Dtype::f32, "policy/step=v90");
  const Promotions off = chosen_versions(Dtype::f32, "policy/step=off");
  Policy policy({}, file_, steps(), refused), network({}, file_, steps(), off);
  EXPECT_EQ(policy.step(), std::string("a step is the network's operations, one after the other: policy/step ") +
                               kRefused +
                               " cannot: invalid launch: a cooperative grid of 133 blocks; this card runs "
                               "132 of them at a time");
  EXPECT_EQ(answer(policy), answer(network));
}

}  // namespace
}  // namespace ladder::denoise

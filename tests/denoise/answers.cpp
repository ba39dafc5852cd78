// Inputs that a policy's answer depends on (observation, seed, number, units), and settings that must not change it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <string>

#include <fmt/format.h>

#include "core/error.h"
#include "core/graph.h"
#include "nn/state.h"
#include "policy/policy.h"
#include "runtime/chosen_versions.h"
#include "tests/denoise/network.h"
#include "tests/denoise/tiny.h"
#include "tests/files.h"

namespace ladder::denoise {
namespace {

using ladder::test::message_of;
using test::farthest;
using test::kFp32Limit;
using Floats = std::vector<float>;
using How = PolicyOptions::Run;

// Made-up numbers around 0, with magnitudes like those of noise and observations.
Floats made(std::size_t count, int seed) {
  Floats values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = std::sin(1.7f * static_cast<float>(i) + 3.1f * seed) * 1.4f;
  return values;
}

Floats copied(std::span<const float> values) { return {values.begin(), values.end()}; }

Floats part(const Floats& values, std::size_t begin, std::size_t count) {
  return {values.begin() + begin, values.begin() + begin + count};
}

// Tiny policy with fewer channels: the emulator computes an answer in a second.
PolicyFile small_policy(std::vector<int> dims) {
  PolicyFile file = tiny_policy();
  file.network.dims = std::move(dims);
  file.network.groups = 4;
  file.weights = nn::made_up_weights(file.network);
  return file;
}

SamplingSchedule steps(const PolicyFile& file, const char* kind = "ddpm", int count = 3) {
  std::vector<std::string> notes;
  return {scheduler_of(file.scheduler, kind, notes), count};
}

// Answers of a small policy, by default with three steps. The parameter says what a step is made of (--use).
class Answers : public test::NeedsDevice, public testing::WithParamInterface<std::string> {
 protected:
  Floats answer(const PolicyOptions& options, const Floats& observations, std::int64_t seed = 5,
                std::int64_t number = 0) {
    return copied(Policy(options, file_, steps(file_), promotions_).answer(observations, seed, number));
  }

  Floats observation(int seed, int samples = 1) const { return made(std::size_t{20} * samples, seed); }

  PolicyFile file_ = small_policy({32, 32});
  Promotions promotions_ = chosen_versions(Dtype::f32, "policy/step=" + GetParam());
};

INSTANTIATE_TEST_SUITE_P(Of, Answers, testing::ValuesIn(test::kinds_of_steps()),
                         [](const auto& info) { return info.param; });

TEST_P(Answers, AreTheSameBitsWithAndWithoutAGraphAndFromPoisonedMemory) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    const Floats expected = answer({.dtype = dtype}, observation(1));
    for (const float value : expected) EXPECT_TRUE(std::isfinite(value));
    for (const How run : {How::graph, How::launches, How::poisoned}) {
      EXPECT_EQ(answer({.dtype = dtype, .run = run}, observation(1)), expected) << name(dtype);
    }
  }
}

TEST_P(Answers, DependOnTheirOwnObservationAlone) {
  Policy policy({}, file_, steps(file_), promotions_);
  const Floats a = copied(policy.answer(observation(1), 5, 0));
  const Floats b = copied(policy.answer(observation(2), 5, 0));
  EXPECT_GT(farthest(a, b), 1e-3);
  EXPECT_EQ(copied(policy.answer(observation(1), 5, 0)), a);
}

TEST_P(Answers, HaveNoiseOfTheirSeedAndNumber) {
  Policy policy({}, file_, steps(file_), promotions_);
  const auto of = [&](int seed, int number) { return copied(policy.answer(observation(1), seed, number)); };
  const Floats first = of(5, 0);
  EXPECT_EQ(of(5, 0), first);
  EXPECT_GT(farthest(of(5, 1), first), 1e-2);
  EXPECT_GT(farthest(of(6, 0), first), 1e-2);
}

// Coefficient tables that make the answer equal the initial noise or the noise of one step. Each noise is a separate
// stream.
TEST_P(Answers, HaveNoiseThatNoOtherAnswerHas) {
  std::set<float> distinct;
  std::size_t count = 0;
  for (int shown = -1; shown < 3; ++shown) {
    SamplingSchedule table = steps(file_);
    for (int i = 0; i < 3; ++i) {
      table.rows[i] = i == shown ? diffusion::StepCoefficients{.clip = 1, .sigma = 1}
                                 : diffusion::StepCoefficients{.clip = 1, .x_weight = 1};
    }
    Policy policy({}, file_, table, promotions_);
    for (int number = 0; number < 4; ++number) {
      const Floats noise = copied(policy.answer(observation(1), 5, number));
      distinct.insert(noise.begin(), noise.end());
      count += noise.size();
    }
  }
  EXPECT_GE(distinct.size() + 2, count);  // two numbers may be equal by chance
}

TEST_P(Answers, OfThreeObservationsAreThreeAnswers) {
  const SamplingSchedule three = steps(file_);
  const std::size_t floats_per_sample = 16 * 2;
  const Floats initial = made(3 * floats_per_sample, 1), noise = made(3 * 3 * floats_per_sample, 2),
               observations = observation(3, 3);
  Policy together({.samples = 3, .given_noise = true}, file_, three, promotions_);
  together.set_noise(initial, noise);
  const Floats found = copied(together.answer(observations, 0, 0));
  Policy single({.given_noise = true}, file_, three, promotions_);
  for (std::size_t i = 0; i < 3; ++i) {
    Floats of_sample;
    for (std::size_t step = 0; step < 3; ++step) {
      const Floats some = part(noise, (3 * step + i) * floats_per_sample, floats_per_sample);
      of_sample.insert(of_sample.end(), some.begin(), some.end());
    }
    single.set_noise(part(initial, i * floats_per_sample, floats_per_sample), of_sample);
    EXPECT_LT(farthest(single.answer(part(observations, i * 20, 20), 0, 0),
                       part(found, i * floats_per_sample, floats_per_sample)),
              kFp32Limit);
  }
}

TEST_P(Answers, OfANormalizedPolicyAreInTheRobotsUnits) {
  const Floats plain = answer({}, observation(1));
  Floats raw = observation(1);
  // The observation is two time steps of ten numbers, which share scale and offset. All products are exact in fp32.
  file_.observation = {.scale = std::vector<double>(10, 0.5), .offset = std::vector<double>(10, 0)};
  file_.action = {.scale = {4, 0.25}, .offset = {0, 0}};
  for (float& value : raw) value *= 2;
  const Floats found = answer({}, raw);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(found[i], plain[i] * (i % 2 == 0 ? 4 : 0.25f));
  file_.action.offset = {-4, 0.5};
  const Floats moved = answer({}, raw);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(moved[i], i % 2 == 0 ? (plain[i] - 1) / 0.25f : (plain[i] + 2) / 4);
  }
}

TEST_P(Answers, AreNoneWhereANumberIsNotFinite) {
  Policy policy({}, file_, steps(file_), promotions_);
  const Floats right = copied(policy.answer(observation(1), 5, 0));
  for (const float wrong : {NAN, INFINITY, -INFINITY}) {
    Floats spoiled = observation(1);
    spoiled[7] = wrong;
    EXPECT_NE(message_of<Failure>([&] { policy.answer(spoiled, 5, 0); }).find("number 7 of observation 0 is"),
              std::string::npos);
  }
  // Finite weights that overflow before a normalisation, and in the scheduler's step, which would clamp the overflow.
  const nn::PublishedWeights weights = file_.weights;
  for (const char* name : {"final_conv.0.block.0.weight", "final_conv.1.bias"}) {
    file_.weights = weights;
    std::ranges::fill(file_.weights.at(name), 3e38f);
    Policy overflows({}, file_, steps(file_), promotions_);
    EXPECT_NE(message_of<Failure>([&] { overflows.answer(observation(1), 5, 0); }).find("of answer 0 is"),
              std::string::npos)
        << name;
  }
  EXPECT_EQ(copied(policy.answer(observation(1), 5, 0)), right);
}

// Networks of other sizes against the reference in double. The coefficients of a DDIM step whose result is the
// prediction make the prediction visible in the answer.
struct Sizes {
  const char* name;
  nn::Unet1dConfig config;
};

class Networks : public test::NeedsDevice, public testing::WithParamInterface<Sizes> {};

TEST_P(Networks, PredictWhatTheReferenceDoes) {
  PolicyFile file = tiny_policy();
  file.network = GetParam().config;
  file.weights = nn::made_up_weights(file.network);
  SamplingSchedule one = steps(file, "ddim", 2);
  one.first_only();
  one.rows[0] = {.pred_scale = 0, .x0_scale = 1, .clip = INFINITY, .pred_weight = 1};
  const std::size_t floats_per_sample = std::size_t{1} * file.network.horizon * file.network.action_dim;
  const std::size_t observed = file.network.observation;
  const Floats initial = made(2 * floats_per_sample, 4), observations = made(2 * observed, 5);
  for (const std::string& kind : test::kinds_of_steps()) {
    const Promotions promotions = chosen_versions(Dtype::f32, "policy/step=" + kind);
    Policy policy({.samples = 2, .given_noise = true}, file, one, promotions);
    policy.set_noise(initial, {});
    const Floats found = copied(policy.answer(observations, 0, 0));
    for (std::size_t i = 0; i < 2; ++i) {
      const Floats x = part(initial, i * floats_per_sample, floats_per_sample);
      const std::vector<double> expected =
          test::predicted(file.network, file.weights, {x.begin(), x.end()}, one.timesteps[0],
                          part(observations, i * observed, observed));
      EXPECT_LT(farthest(part(found, i * floats_per_sample, floats_per_sample), expected), kFp32Limit) << policy.step();
    }
    if (policy.step().find("policy/step has none") != std::string::npos) break;  // further kinds of step are the same
  }
}

INSTANTIATE_TEST_SUITE_P(
    Of, Networks,
    testing::Values(Sizes{"three_levels", nn::tiny_unet1d()},
                    Sizes{"shift_alone",
                          {.dims = {16, 24}, .step_channels = 8, .observation = 5, .groups = 4, .scale = false}},
                    Sizes{"one_level",
                          {.horizon = 5,
                           .action_dim = 7,
                           .dims = {24},
                           .taps = 3,
                           .step_channels = 16,
                           .observation = 3,
                           .groups = 3}},
                    Sizes{"four_levels_of_one_width",
                          {.horizon = 8,
                           .action_dim = 10,
                           .dims = {32, 32, 32, 32},
                           .taps = 3,
                           .step_channels = 4,
                           .observation = 3,
                           .groups = 1}},
                    Sizes{"four_levels",
                          {.action_dim = 1, .dims = {8, 16, 24, 8}, .taps = 1, .step_channels = 4, .observation = 1}},
                    Sizes{"d_is_the_width",
                          {.horizon = 4,
                           .action_dim = 8,
                           .dims = {8, 12},
                           .taps = 7,
                           .step_channels = 12,
                           .observation = 9,
                           .groups = 2}}),
    [](const auto& info) { return std::string(info.param.name); });

// A prediction's error is some sqrt(3 * 30) roundings, three in each of 30 stages, of 2^-9 in bf16 and 2^-12 in fp16
// (half the unit roundoff, as a root mean square). Three steps, at time steps 6, 3 and 0, multiply the error by 2
// altogether. The largest of 32 errors is three times the typical error.
double rounding_limit(Dtype dtype) {
  if (dtype == Dtype::f32) return kFp32Limit;
  return 6 * (dtype == Dtype::f16 ? 0x1p-12 : 0x1p-9) * std::sqrt(90.0);
}

TEST_P(Answers, In16BitsAreNearThoseInFp32) {
  const Floats expected = answer({}, observation(1));
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    EXPECT_LT(farthest(answer({.dtype = dtype}, observation(1)), expected), rounding_limit(dtype)) << name(dtype);
  }
}

// Tensors of a program on the device, and the launches that use them.
class OnDevice {
 public:
  OnDevice(Policy& policy, Dtype dtype, const Floats& observations, const Floats& initial, const Floats& noise)
      : policy_(policy), actions_("actions", initial.size() * sizeof(float)) {
    Floats condition, rows;
    for (const float value : observations) condition.push_back(static_cast<float>(nn::mish(value)));
    for (std::size_t i = 0; i < noise.size(); i += initial.size()) {
      rows.insert(rows.end(), noise.begin() + i, noise.begin() + i + initial.size());
      rows.resize(rows.size() + policy.noise_row() - initial.size());
    }
    condition_ = region(Dtype::f32, condition);
    initial_ = region(Dtype::f32, initial);
    rounded_ = region(dtype, initial);
    steps_ = region(Dtype::f32, rows);
  }

  Floats answer() {
    const OwnedStream stream;
    policy_.enqueue({.condition = static_cast<const float*>(condition_->base),
                     .initial = static_cast<const float*>(initial_->base),
                     .rounded = rounded_->base,
                     .steps = static_cast<const float*>(steps_->base),
                     .actions = static_cast<float*>(actions_.base)},
                    stream);
    stream.synchronize();
    Floats actions(actions_.bytes / sizeof(float));
    backend::copy_out(actions.data(), actions_.base, actions_.bytes);
    return actions;
  }

 private:
  static std::unique_ptr<OwnedRegion> region(Dtype dtype, const Floats& values) {
    auto made = std::make_unique<OwnedRegion>("a program's", values.size() * size_of(dtype));
    nn::copy_rounded(values, dtype, *made);
    return made;
  }

  Policy& policy_;
  OwnedRegion actions_;
  std::unique_ptr<OwnedRegion> condition_, initial_, rounded_, steps_;
};

// A 16-bit network starts from its own copy of x, which must be the copy of the noise given last.
TEST_P(Answers, BeginWithTheNoiseGivenLast) {
  constexpr std::size_t kEach = 16 * 2;
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    const PolicyOptions options{.dtype = dtype, .given_noise = true};
    Policy of_the_host(options, file_, steps(file_), promotions_),
        of_a_program(options, file_, steps(file_), promotions_);
    for (const int seed : {1, 2}) {
      const Floats initial = made(kEach, seed), noise = made(3 * kEach, seed + 2);
      Policy fresh({.given_noise = true}, file_, steps(file_), promotions_);
      fresh.set_noise(initial, noise);
      const Floats expected = copied(fresh.answer(observation(1), 0, 0));
      of_the_host.set_noise(initial, noise);
      const Floats found = copied(of_the_host.answer(observation(1), 0, 0));
      EXPECT_LT(farthest(found, expected), rounding_limit(dtype)) << name(dtype) << " " << seed;
      EXPECT_EQ(OnDevice(of_a_program, dtype, observation(1), initial, noise).answer(), found)
          << name(dtype) << " " << seed;
    }
  }
}

}  // namespace
}  // namespace ladder::denoise

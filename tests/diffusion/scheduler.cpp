// Every version of a sampler's step against the package diffusers in fp32: tests/golden/scheduler_steps.json, written
// by tools/dev/make_diffusion_constants.py.
#include "dev/diffusion/scheduler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/backend.h"
#include "core/check/check.h"
#include "core/error.h"
#include "core/paths.h"
#include "dev/diffusion/diffusion.h"

namespace ladder::diffusion {
namespace {

using Json = nlohmann::json;

const Json& golden() {
  static const Json steps = [] {
    std::ifstream file(source_dir() + "/tests/golden/scheduler_steps.json");
    return Json::parse(file);
  }();
  return steps;
}

SchedulerConfig config_of(const Json& known) {
  SchedulerConfig config = SchedulerConfig::from_json(known["config"].dump());
  config.eta = known.value("eta", 0.0);
  config.clipped_eps = known.value("clipped_eps", false);
  return config;
}

template <class P>
Case case_of_rows(const std::vector<StepCoefficients>& table, bool with_noise) {
  const Problem p{.w = 4, .steps = static_cast<int>(table.size()), .eta = with_noise ? 1 : 0};
  return pass_of<P>().parse(p.str());
}

HostTensors inputs_of(const Case& c, const std::vector<StepCoefficients>& table) {
  HostTensors inputs = fill(c, Pattern::normal, 1);
  for (const char* name : {"x", "pred", "noise"}) {
    if (inputs.find(name)) inputs[name] = golden()[name].get<std::vector<float>>();
  }
  const auto* const values = reinterpret_cast<const float*>(table.data());
  inputs["table"].assign(values, values + table.size() * kStepColumns);
  return inputs;
}

// Returns x after each step of the table, every step starting from the same x.
std::vector<float> stepped(const Version& v, const Case& c, HostTensors inputs) {
  const Kernel kernel = plan(v, c);
  DeviceTensors tensors(c, inputs, kernel.workspace_bytes);
  const auto launch = kernel.bind(tensors.pointers(), tensors.workspace());
  std::vector<float> after;
  for (int i = 0; i < problem_of<DdpmStep>(c).steps; ++i) {
    inputs["step"] = {static_cast<float>(i)};
    tensors.refill(inputs);
    tensors.reset();
    launch(backend::check_stream());
    backend::synchronize();
    const std::vector<float> x = tensors.outputs().at(0);
    after.insert(after.end(), x.begin(), x.end());
  }
  return after;
}

// Returns the largest difference from diffusers: absolute with clamping, since x0 is then of unit size, else relative
// to the result. Each difference is reduced by diffusers' own cancellation error: its direction is sqrt(1 - next -
// sigma^2), and a sigma off by one unit in the last place moves the direction by sigma^2 / direction of such units.
// diffusers' square roots on a CPU are MKL's, a fifth of which are off by one unit.
double largest_difference(const std::vector<float>& after, const Json& known,
                          const std::vector<StepCoefficients>& table) {
  const auto expected = known["x"].get<std::vector<double>>();
  if (after.size() != expected.size()) return std::numeric_limits<double>::infinity();
  const std::size_t inputs = golden()["x"].size();
  double largest = 0;
  for (std::size_t i = 0; i < after.size(); ++i) {
    const StepCoefficients& s = table.at(i / inputs);
    const double size = std::isinf(s.clip) ? std::max(1.0, std::abs(expected[i])) : 1.0;
    const double undetermined = s.pred_weight > 0 ? std::pow(s.sigma, 2) / s.pred_weight * 0x1p-23 : 0.0;
    const double difference = std::abs(after[i] - expected[i]) / size - undetermined;
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

TEST(Scheduler, EveryVersionsStepsEqualDiffusers) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  double largest = 0;
  for (const Json& known : golden()["cases"]) {
    const SchedulerConfig config = config_of(known);
    const auto timesteps = known["timesteps"].get<std::vector<int>>();
    const std::string of =
        fmt::format("{} eta {} clipped eps {}", known["config"].dump(), config.eta, config.clipped_eps);
    ASSERT_EQ(scheduler_timesteps(config, static_cast<int>(timesteps.size())), timesteps) << of;
    const std::vector<StepCoefficients> table = scheduler_table(config, timesteps);
    const bool is_ddpm = config.kind == SchedulerKind::ddpm;
    const Case c = is_ddpm ? case_of_rows<DdpmStep>(table, true) : case_of_rows<DdimStep>(table, config.eta > 0);
    for (const Version* v : versions_of(*c.pass)) {
      if (!why_not(*v, c).empty()) continue;
      const double difference = largest_difference(stepped(*v, c, inputs_of(c, table)), known, table);
      EXPECT_LE(difference, 1e-6) << v->label() << ", " << of;
      largest = std::max(largest, difference);
    }
  }
  fmt::print("largest difference from diffusers {:.1e}\n", largest);
}

// The comparison finds rows of a wrong schedule: alpha_bar of another next time step, noise after the last step, terms
// scaled before the subtraction (computed on the host, as no kernel has such a switch).
TEST(Scheduler, TheComparisonFindsWrongRows) {
  const Json& known = golden()["cases"][0];
  const std::vector<int> timesteps = scheduler_timesteps(config_of(known), 100);
  const std::vector<StepCoefficients> right = scheduler_table(config_of(known), timesteps);
  const auto x = golden()["x"].get<std::vector<float>>(), pred = golden()["pred"].get<std::vector<float>>(),
             noise = golden()["noise"].get<std::vector<float>>();
  const auto difference = [&](const std::vector<StepCoefficients>& table, bool scaled_before) {
    std::vector<float> after;
    for (const StepCoefficients& s : table) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float before = s.x0_scale * s.x_scale * x[i] - s.x0_scale * s.pred_scale * pred[i];
        const float x0 = scaled_before ? before : (s.x_scale * x[i] - s.pred_scale * pred[i]) * s.x0_scale;
        after.push_back(s.x0_weight * std::clamp(x0, -s.clip, s.clip) + s.x_weight * x[i] + s.sigma * noise[i]);
      }
    }
    return largest_difference(after, known, table);
  };
  EXPECT_LE(difference(right, false), 1e-6);
  EXPECT_GT(difference(right, true), 1e-6);
  std::vector<StepCoefficients> wrong = right;
  wrong.back().sigma = 0.01f;
  EXPECT_GT(difference(wrong, false), 1e-3);
  SchedulerConfig in_double = config_of(known);
  in_double.in_double = true;
  EXPECT_GT(difference(scheduler_table(in_double, timesteps), false), 1e-6);
  // Skip one time step: the row leads two time steps down instead of one.
  for (std::size_t i = 0; i + 2 < timesteps.size(); ++i) {
    wrong[i] = scheduler_table(config_of(known), {timesteps[i], timesteps[i + 2]})[0];
    EXPECT_GT(difference(wrong, false), 1e-3) << i;
    wrong = right;
  }
}

TEST(Scheduler, TimestepsEqualDiffusers) {
  for (const Json& known : golden()["timesteps"]) {
    SchedulerConfig config = SchedulerConfig::from_json(
        Json{{"_class_name", "DDPMScheduler"}, {"timestep_spacing", known["timestep_spacing"]}}.dump());
    config.num_train_timesteps = 100;
    for (int steps = 1; steps <= 100; ++steps) {
      int sum = 0, number = 0;
      for (const int t : scheduler_timesteps(config, steps)) sum += ++number * t;
      EXPECT_EQ(sum, known["sums"][steps - 1].get<int>()) << known["timestep_spacing"] << steps;
    }
  }
}

// A robot must not move on NaN: clamping must not turn NaN into a number.
TEST(Scheduler, NanStaysNan) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  const SchedulerConfig config{};
  const std::vector<StepCoefficients> table = scheduler_table(config, scheduler_timesteps(config, 4));
  const Case c = case_of_rows<DdpmStep>(table, true);
  for (const Version* v : versions_of(*c.pass)) {
    HostTensors inputs = inputs_of(c, table);
    inputs["pred"][1] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> after = stepped(*v, c, inputs);
    for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(std::isnan(after[i]), i % 4 == 1) << v->label() << i;
  }
}

std::string refused(const Json& changed) {
  Json config = {{"_class_name", "DDPMScheduler"}, {"num_train_timesteps", 100}, {"sample_max_value", 2.0}};
  config.update(changed);
  try {
    const SchedulerConfig made = SchedulerConfig::from_json(config.dump());
    scheduler_table(made, scheduler_timesteps(made, 50));
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    EXPECT_LT(std::string(error.what()).size(), 400u);
    return error.what();
  }
  return {};
}

TEST(Scheduler, BadConfigurationsAreRefusedByName) {
  EXPECT_EQ(refused(Json::object()), "");
  EXPECT_EQ(refused({{"_class_name", "DDIMScheduler"}, {"variance_type", "learned"}}), "");  // another scheduler's key
  const std::vector<std::pair<Json, std::vector<std::string>>> cases = {
      {{{"_class_name", "PNDMScheduler"}}, {"_class_name 'PNDMScheduler'", "DDPMScheduler, DDIMScheduler"}},
      {{{"beta_schedule", "sigmoid"}}, {"beta_schedule 'sigmoid'", "linear, scaled_linear, squaredcos_cap_v2"}},
      {{{"prediction_type", "flow"}}, {"prediction_type 'flow'", "epsilon, sample, v_prediction"}},
      {{{"variance_type", "fixed_large_log"}}, {"fixed_large_log", "fixed_small, fixed_small_log, fixed_large"}},
      {{{"variance_type", "learned"}}, {"learned", "fixed_small, fixed_small_log, fixed_large"}},
      {{{"variance_type", "learned_range"}}, {"learned_range", "fixed_small, fixed_small_log, fixed_large"}},
      {{{"timestep_spacing", ""}}, {"timestep_spacing ''", "leading, trailing, linspace"}},
      {{{"thresholding", true}}, {"thresholding"}},
      {{{"rescale_betas_zero_snr", true}}, {"rescale_betas_zero_snr"}},
      {{{"beta_start", "1e-4"}}, {"beta_start"}},
      {{{"clip_sample", 1}}, {"clip_sample"}},
      {{{"beta_end", 1.5}}, {"betas"}},
      {{{"beta_start", 0.0}}, {"betas"}},
      {{{"beta_start", nullptr}}, {"beta_start"}},
      {{{"trained_betas", {0.1, 0.2}}}, {"2 trained_betas for 100"}},
      {{{"trained_betas", {"a"}}}, {"trained_betas"}},
      {{{"num_train_timesteps", 0}}, {"num_train_timesteps"}},
      {{{"num_train_timesteps", 49}}, {"50 steps: 1 to 49"}},
      {{{"clip_sample_range", 0}}, {"clip_sample_range"}},
      {{{"steps_offset", 3}}, {"steps_offset 3"}},
      {{{"steps_offset", -1}}, {"steps_offset -1"}},
      {{{"steps_offset", 4294967296}}, {"steps_offset 4294967296 ", "a whole number from 0 to"}},
      {{{"num_train_timesteps", 1.5}}, {"num_train_timesteps 1.5 ", "a whole number from 1 to"}},
      {{{"num_train_timesteps", true}}, {"num_train_timesteps true ", "a whole number from 1 to"}},
      {{{"num_train_timesteps", 4294967306}}, {"num_train_timesteps 4294967306 ", "a whole number from 1 to"}},
      {{{"num_train_timesteps", 2147483647}}, {"num_train_timesteps 2147483647 ", "a whole number from 1 to"}},
      {{{"trained_betas", {0.1, true}}}, {"trained_betas true "}},
      {{{"trained_betas", 0.1}}, {"trained_betas 0.1 ", "a list of"}},
      {{{"clip_sample_range", "1"}}, {"clip_sample_range \"1\" ", "a number"}},
      {{{"prediction_type", std::string(100'000, 'x')}}, {"prediction_type 'xxx", "xxx...'"}},
  };
  for (const auto& [changed, words] : cases) {
    for (const std::string& word : words) {
      EXPECT_NE(refused(changed).find(word), std::string::npos) << changed.dump() << ": " << refused(changed);
    }
  }
  const std::string brackets(300'000, '['), deep = R"({"_class_name": "DDPMScheduler", "x": )" + brackets;
  const std::string closed = deep + std::string(300'000, ']') + "}";
  for (const std::string& text : {std::string(), std::string("{"), std::string("[]"), std::string("{}"),
                                  std::string("3"), brackets, deep, closed}) {
    EXPECT_THROW(SchedulerConfig::from_json(text), UsageError) << text.substr(0, 60);
  }
}

TEST(Scheduler, BadStepsAreRefused) {
  SchedulerConfig config{.kind = SchedulerKind::ddim};
  EXPECT_THROW(scheduler_timesteps(config, 0), UsageError);
  EXPECT_THROW(scheduler_timesteps(config, 1001), UsageError);
  EXPECT_THROW(scheduler_table(config, {1000}), UsageError);
  EXPECT_THROW(scheduler_table(config, {-1}), UsageError);
  EXPECT_THROW(scheduler_table({}, {5, 5}), UsageError);
  EXPECT_THROW(scheduler_table({}, {5, -1}), UsageError);
  for (const double eta : {-0.1, 1.5, std::nan("")}) {
    config.eta = eta;
    EXPECT_THROW(scheduler_table(config, {900, 800}), UsageError) << eta;
  }
  // Rounding may make the square of the direction negative at eta 1: one step from noise alone.
  config = {.kind = SchedulerKind::ddim, .beta_schedule = Betas::cosine, .eta = 1};
  for (const StepCoefficients& step : scheduler_table(config, {999, 499})) EXPECT_TRUE(std::isfinite(step.pred_weight));
}

}  // namespace
}  // namespace ladder::diffusion

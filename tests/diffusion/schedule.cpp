// Schedules and samplers against the package diffusers: tests/golden/diffusion_constants.json, written by
// tools/dev/make_diffusion_constants.py.
#include "dev/diffusion/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/error.h"
#include "core/paths.h"

namespace ladder::diffusion {
namespace {

using Json = nlohmann::json;

const Json& golden() {
  static const Json constants = [] {
    std::ifstream file(source_dir() + "/tests/golden/diffusion_constants.json");
    return Json::parse(file);
  }();
  return constants;
}

// Returns a case's configuration, computed in double. Missing words take their defaults.
SchedulerConfig config_of(const Json& known) {
  SchedulerConfig config{.clip_sample = known.value("clip", true)};
  config.beta_schedule = known.value("betas", "linear") == "cosine" ? Betas::cosine : Betas::linear;
  const std::string spacing = known["spacing"];
  config.timestep_spacing = spacing == "leading"    ? Spacing::leading
                            : spacing == "trailing" ? Spacing::trailing
                                                    : Spacing::linspace;
  if (known.value("variance", "") == "fixed_large") config.variance_type = Variance::fixed_large;
  config.in_double = true;
  return config;
}

TEST(Schedule, EqualsDiffusers) {
  for (const auto& [name, known] : golden()["schedules"].items()) {
    const Schedule schedule = make_schedule(name == "cosine" ? Betas::cosine : Betas::linear);
    for (std::size_t i = 0; i < known["t"].size(); ++i) {
      const int t = known["t"][i];
      EXPECT_NEAR(schedule.betas[t], known["betas"][i], 1e-14) << name << t;
      EXPECT_NEAR(schedule.alphas_cumprod[t] / known["alphas_cumprod"][i].get<double>(), 1, 1e-12) << name << t;
    }
  }
}

TEST(Schedule, PosteriorVariance) {
  const Schedule schedule = make_schedule(Betas::linear);
  EXPECT_EQ(schedule.posterior_variance(0), 0);
  for (const int t : {1, 10, 999}) {
    EXPECT_LT(schedule.posterior_variance(t), schedule.betas[t]);
    EXPECT_NEAR(schedule.posterior_variance(t),
                schedule.betas[t] * (1 - schedule.alphas_cumprod[t - 1]) / (1 - schedule.alphas_cumprod[t]), 1e-16);
  }
  // A step's sigma is the root of the posterior variance if the table has all kTimesteps steps.
  const SchedulerConfig config{.in_double = true};
  const std::vector<StepCoefficients> table = scheduler_table(config, scheduler_timesteps(config, kTimesteps));
  for (const int t : {1, 10, 999}) {
    EXPECT_NEAR(table[kTimesteps - 1 - t].sigma, std::sqrt(schedule.posterior_variance(t)), 1e-7);
  }
}

TEST(Timesteps, EqualDiffusers) {
  for (const Json& known : golden()["timesteps"]) {
    const int steps = known["steps"];
    std::vector<int> ours = scheduler_timesteps(config_of(known), steps);
    EXPECT_EQ(std::accumulate(ours.begin(), ours.end(), 0), known["sum"].get<int>()) << known["spacing"] << steps;
    if (steps > 50) ours.erase(ours.begin() + 5, ours.end() - 5);
    EXPECT_EQ(ours, known["timesteps"].get<std::vector<int>>()) << known["spacing"] << steps;
  }
  EXPECT_THROW(scheduler_timesteps({}, 0), UsageError);
  EXPECT_THROW(scheduler_timesteps({}, 1001), UsageError);
}

// The step that a kernel computes from the table's fp32 coefficients, in double or fp32.
template <class Real>
Real stepped(const StepCoefficients& s, Real x, Real eps, Real noise) {
  const Real clip = s.clip;
  const Real x0 = std::clamp((s.x_scale * x - s.pred_scale * eps) * s.x0_scale, -clip, clip);
  return s.x0_weight * x0 + s.x_weight * x + s.pred_weight * eps + s.sigma * noise;
}

void expect_steps(const Json& known, const SchedulerConfig& config) {
  const Json& constants = golden();
  const StepCoefficients step = scheduler_table(config, scheduler_timesteps(config, known["steps"])).at(known["index"]);
  for (std::size_t i = 0; i < constants["x"].size(); ++i) {
    const double x = constants["x"][i];
    const double eps = constants["eps"][i];
    const double noise = constants["noise"][i];
    const double expected = known["x"][i];
    // Scale by the terms of the sum: where x0 is not clamped, 1 / sqrt(alpha_bar) is up to 1e4 (cosine) or 157.
    const double scale =
        1 + std::abs(step.x0_weight) * std::min<double>(step.x0_scale * (std::abs(x) + std::abs(eps)), step.clip);
    EXPECT_NEAR(stepped<double>(step, x, eps, noise), expected, 1e-6 * scale) << known.dump();
    EXPECT_NEAR(stepped<float>(step, x, eps, noise), expected, 1e-6 * scale) << known.dump();
  }
}

TEST(Ddpm, StepsEqualDiffusersInDouble) {
  for (const Json& known : golden()["ddpm"]) expect_steps(known, config_of(known));
}

TEST(Ddim, StepsEqualDiffusersInDouble) {
  for (const Json& known : golden()["ddim"]) {
    SchedulerConfig config = config_of(known);
    config.kind = SchedulerKind::ddim;
    config.eta = known["eta"];
    config.clipped_eps = known["clipped_eps"];
    expect_steps(known, config);
  }
}

}  // namespace
}  // namespace ladder::diffusion

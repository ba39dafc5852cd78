#include "dev/diffusion/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/json_fields.h"

namespace ladder::diffusion {
namespace {

constexpr int kMaxTimesteps = 1'000'000;  // one row of coefficients each

void refuse(const JsonFields& fields, const char* key) {
  bool is_on = false;
  fields.read(key, is_on);
  if (is_on) throw UsageError(fmt::format("the scheduler's {} is not supported: it must be false", key));
}

template <class Real>
std::vector<Real> alphas_cumprod(const SchedulerConfig& c) {
  if (!c.trained_betas.empty()) {
    return cumulative_alphas(std::vector<Real>(c.trained_betas.begin(), c.trained_betas.end()));
  }
  return cumulative_alphas(make_betas<Real>(c.beta_schedule, c.num_train_timesteps, c.beta_start, c.beta_end));
}

// Coefficients of the predicted x0, which ddpm and ddim share.
template <class Real>
StepCoefficients prediction(const SchedulerConfig& c, Real bar) {
  const Real signal = std::sqrt(bar), noise = std::sqrt(1 - bar);
  StepCoefficients step{};
  step.x0_scale = 1;
  if (c.prediction_type == Prediction::epsilon) {
    step.x_scale = 1;
    step.pred_scale = static_cast<float>(noise);
    step.x0_scale = static_cast<float>(1 / signal);
  } else if (c.prediction_type == Prediction::sample) {
    step.pred_scale = -1;
  } else {
    step.x_scale = static_cast<float>(signal);
    step.pred_scale = static_cast<float>(noise);
  }
  step.clip = c.clip_sample ? static_cast<float>(c.clip_sample_range) : std::numeric_limits<float>::infinity();
  return step;
}

// `bar` and `next` are alpha_bar at time step t and at the next one. The order of operations is diffusers'.
template <class Real>
StepCoefficients ddpm_row(const SchedulerConfig& c, int t, Real bar, Real next) {
  StepCoefficients step = prediction(c, bar);
  const Real alpha = bar / next;
  const Real beta = 1 - alpha;
  step.x0_weight = static_cast<float>(std::sqrt(next) * beta / (1 - bar));
  step.x_weight = static_cast<float>(std::sqrt(alpha) * (1 - next) / (1 - bar));
  if (t == 0) return step;
  const Real small = std::max((1 - next) / (1 - bar) * beta, static_cast<Real>(1e-20));
  const bool log = c.variance_type == Variance::fixed_small_log;
  const Real variance = c.variance_type == Variance::fixed_large ? beta : small;
  step.sigma = static_cast<float>(log ? std::exp(static_cast<Real>(0.5) * std::log(small)) : std::sqrt(variance));
  return step;
}

template <class Real>
StepCoefficients ddim_row(const SchedulerConfig& c, int t, Real bar, Real next) {
  StepCoefficients step = prediction(c, bar);
  const Real sigma = static_cast<Real>(c.eta) * std::sqrt((1 - next) / (1 - bar) * (1 - bar / next));
  const Real square = 1 - next - sigma * sigma;
  if (!(square > -1e-6)) {  // rounding errors are smaller
    throw UsageError(fmt::format("eta {} is more than time step {} allows: from 0 to 1 are right", c.eta, t));
  }
  // Weight of eps in x'. eps is the model's output, or follows from it and x.
  const Real direction = std::sqrt(std::max(square, Real{0}));
  const Real signal = std::sqrt(bar), noise = std::sqrt(1 - bar);
  Real x0_weight = std::sqrt(next), x_weight = 0, pred_weight = direction;
  if (c.clipped_eps) {
    x0_weight -= direction * signal / noise;
    x_weight = direction / noise;
    pred_weight = 0;
  } else if (c.prediction_type == Prediction::sample) {
    x_weight = direction / noise;
    pred_weight = -direction * signal / noise;
  } else if (c.prediction_type == Prediction::v_prediction) {
    x_weight = direction * noise;
    pred_weight = direction * signal;
  }
  step.sigma = static_cast<float>(sigma);
  step.x0_weight = static_cast<float>(x0_weight);
  step.x_weight = static_cast<float>(x_weight);
  step.pred_weight = static_cast<float>(pred_weight);
  return step;
}

template <class Real>
std::vector<StepCoefficients> table(const SchedulerConfig& c, const std::vector<int>& timesteps) {
  const std::vector<Real> bars = alphas_cumprod<Real>(c);
  for (std::size_t t = 0; t < bars.size(); ++t) {
    const Real before = t == 0 ? Real{1} : bars[t - 1];
    if (bars[0] < Real{1} && bars[t] <= before && bars[t] > Real{0}) continue;
    throw UsageError(
        fmt::format("the scheduler's betas make alphas_cumprod {} at time step {} and {} before it: it must "
                    "fall from below 1 and stay above 0",
                    bars[t], t, before));
  }
  const int stride = c.num_train_timesteps / static_cast<int>(std::max<std::size_t>(timesteps.size(), 1));
  std::vector<StepCoefficients> rows;
  for (std::size_t i = 0; i < timesteps.size(); ++i) {
    const int t = timesteps[i];
    if (t < 0 || t >= c.num_train_timesteps) {
      throw UsageError(fmt::format("time step {}: 0 to {} are right", t, c.num_train_timesteps - 1));
    }
    if (c.kind == SchedulerKind::ddim) {
      const Real last = c.set_alpha_to_one ? Real{1} : bars[0];
      rows.push_back(ddim_row(c, t, bars[t], t >= stride ? bars[t - stride] : last));
    } else {
      const bool is_last = i + 1 == timesteps.size();
      if (!is_last && (timesteps[i + 1] < 0 || timesteps[i + 1] >= t)) {
        throw UsageError(fmt::format("time step {} after {}: they must fall", timesteps[i + 1], t));
      }
      rows.push_back(ddpm_row(c, t, bars[t], is_last ? Real{1} : bars[timesteps[i + 1]]));
    }
  }
  return rows;
}

void check(const SchedulerConfig& c) {
  if (c.num_train_timesteps < 1 || c.num_train_timesteps > kMaxTimesteps) {
    throw UsageError(fmt::format("num_train_timesteps is {}: 1 to {} are right", c.num_train_timesteps, kMaxTimesteps));
  }
  if (c.steps_offset < 0 || c.steps_offset > kMaxTimesteps) {
    throw UsageError(fmt::format("steps_offset is {}: 0 to {} are right", c.steps_offset, kMaxTimesteps));
  }
  if (!c.trained_betas.empty() && std::ssize(c.trained_betas) != c.num_train_timesteps) {
    throw UsageError(fmt::format("{} trained_betas for {} time steps", c.trained_betas.size(), c.num_train_timesteps));
  }
  if (c.clip_sample && !(c.clip_sample_range > 0)) {
    throw UsageError(fmt::format("clip_sample_range is {}: more than 0 is right", c.clip_sample_range));
  }
  if (!(c.eta >= 0)) throw UsageError(fmt::format("eta is {}: from 0 to 1 are right", c.eta));
}

}  // namespace

SchedulerConfig SchedulerConfig::from_json(std::string_view text) {
  const nlohmann::json json = parse_object(text, "the scheduler's configuration");
  if (!json.contains("_class_name")) {
    throw UsageError("the scheduler's _class_name is missing; there are: DDPMScheduler, DDIMScheduler");
  }
  const JsonFields fields(json, "the scheduler's");
  SchedulerConfig c;
  fields.read<SchedulerKind>("_class_name", c.kind,
                             {{"DDPMScheduler", SchedulerKind::ddpm}, {"DDIMScheduler", SchedulerKind::ddim}});
  refuse(fields, "thresholding");
  refuse(fields, "rescale_betas_zero_snr");
  fields.read("num_train_timesteps", c.num_train_timesteps, 1, kMaxTimesteps);
  fields.read("beta_start", c.beta_start);
  fields.read("beta_end", c.beta_end);
  if (json.contains("trained_betas") && !json["trained_betas"].is_null()) {
    fields.read("trained_betas", c.trained_betas, kMaxTimesteps, 0.0, 1.0);
  }
  if (c.trained_betas.empty()) {
    fields.read<Betas>(
        "beta_schedule", c.beta_schedule,
        {{"linear", Betas::linear}, {"scaled_linear", Betas::scaled_linear}, {"squaredcos_cap_v2", Betas::cosine}});
  }
  fields.read<Prediction>(
      "prediction_type", c.prediction_type,
      {{"epsilon", Prediction::epsilon}, {"sample", Prediction::sample}, {"v_prediction", Prediction::v_prediction}});
  fields.read("clip_sample", c.clip_sample);
  fields.read("clip_sample_range", c.clip_sample_range);
  fields.read<Spacing>(
      "timestep_spacing", c.timestep_spacing,
      {{"leading", Spacing::leading}, {"trailing", Spacing::trailing}, {"linspace", Spacing::linspace}});
  fields.read("steps_offset", c.steps_offset, 0, kMaxTimesteps);
  fields.read("set_alpha_to_one", c.set_alpha_to_one);
  if (c.kind == SchedulerKind::ddpm) {
    fields.read<Variance>("variance_type", c.variance_type,
                          {{"fixed_small", Variance::fixed_small},
                           {"fixed_small_log", Variance::fixed_small_log},
                           {"fixed_large", Variance::fixed_large}});
  }
  check(c);
  return c;
}

std::vector<int> scheduler_timesteps(const SchedulerConfig& config, int steps) {
  check(config);
  const int trained = config.num_train_timesteps;
  if (steps < 1 || steps > trained) {
    throw UsageError(fmt::format("a sampler of {} steps: 1 to {} are right", steps, trained));
  }
  // Halves round to even. The arithmetic is NumPy's: the step of numpy.arange is the difference of its first two
  // values.
  const double trailing = trained - double(trained) / steps - trained;
  const double linspace = steps > 1 ? double(trained - 1) / (steps - 1) : 0;
  const auto rounded = [](double t) { return static_cast<int>(std::nearbyint(t)); };
  std::vector<int> timesteps;
  for (int i = 0; i < steps; ++i) {
    if (config.timestep_spacing == Spacing::leading) {
      timesteps.push_back((steps - 1 - i) * (trained / steps) + config.steps_offset);
    } else if (config.timestep_spacing == Spacing::trailing) {
      timesteps.push_back(rounded(trained + i * trailing) - 1);
    } else {
      timesteps.push_back(rounded((steps - 1 - i) * linspace));
    }
  }
  if (timesteps.front() >= trained || timesteps.back() < 0) {
    throw UsageError(fmt::format("steps_offset {} with {} steps: the time steps {} to {} are not between 0 and {}",
                                 config.steps_offset, steps, timesteps.back(), timesteps.front(), trained - 1));
  }
  return timesteps;
}

std::vector<StepCoefficients> scheduler_table(const SchedulerConfig& config, const std::vector<int>& timesteps) {
  check(config);
  return config.in_double ? table<double>(config, timesteps) : table<float>(config, timesteps);
}

}  // namespace ladder::diffusion

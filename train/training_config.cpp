#include "train/training_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json_fields.h"
#include "core/splitmix64.h"

namespace ladder::train {
namespace {

using Json = nlohmann::json;

const char* name_of(Decay decay) {
  return decay == Decay::linear ? "linear" : decay == Decay::cosine ? "cosine" : "constant";
}

}  // namespace

void TrainingConfig::check() const {
  model.check();
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw UsageError(what);
  };
  require(steps >= 1 && batch >= 1 && micro_batches >= 1, "steps, batch and micro-batches are at least 1");
  require(batch % micro_batches == 0, "the batch must be a multiple of the micro-batches");
  require(learning_rate > 0 && std::isfinite(learning_rate), "the learning rate is a positive number");
  require(warm_up >= 0 && clip >= 0 && weight_decay >= 0, "warm-up, clip and weight decay are 0 or more");
  require(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1 && eps > 0,
          "betas are from 0 to below 1, eps is positive");
  require(ema_rate >= 0 && ema_rate < 1, "the rate of the moving average is from 0 to below 1");
  require(dtype == Dtype::bf16 || dtype == Dtype::f32 || dtype == Dtype::tf32,
          "a training's dtype is bf16, fp32 or tf32");
}

void to_json(Json& json, const TrainingConfig& c) {
  json = {{"name", c.name},
          {"model", c.model},
          {"dtype", ladder::name(c.dtype)},
          {"steps", c.steps},
          {"batch", c.batch},
          {"micro_batches", c.micro_batches},
          {"learning_rate", c.learning_rate},
          {"warm_up", c.warm_up},
          {"decay", name_of(c.decay)},
          {"beta1", c.beta1},
          {"beta2", c.beta2},
          {"eps", c.eps},
          {"weight_decay", c.weight_decay},
          {"clip", c.clip},
          {"ema_rate", c.ema_rate},
          {"ema_ramp", c.ema_ramp},
          {"schedule", c.betas == diffusion::Betas::cosine ? "cosine" : "linear"},
          {"flip", c.flip},
          {"overfit_batch", c.overfit_batch},
          {"seed", c.seed}};
}

void from_json(const Json& json, TrainingConfig& c) {
  const JsonFields fields(json, "the training's", JsonFields::Missing::is_wrong);
  fields.read("name", c.name);
  nn::from_json(fields.object("model"), c.model);
  fields.read<Dtype>("dtype", c.dtype, {{"bf16", Dtype::bf16}, {"fp32", Dtype::f32}, {"tf32", Dtype::tf32}});
  fields.read<std::int64_t>("steps", c.steps, 1);
  fields.read("batch", c.batch, 1);
  fields.read("micro_batches", c.micro_batches, 1);
  fields.read("learning_rate", c.learning_rate);
  fields.read<std::int64_t>("warm_up", c.warm_up, 0);
  fields.read<Decay>("decay", c.decay,
                     {{"constant", Decay::constant}, {"linear", Decay::linear}, {"cosine", Decay::cosine}});
  fields.read("beta1", c.beta1);
  fields.read("beta2", c.beta2);
  fields.read("eps", c.eps);
  fields.read("weight_decay", c.weight_decay);
  fields.read("clip", c.clip);
  fields.read("ema_rate", c.ema_rate);
  fields.read("ema_ramp", c.ema_ramp);
  fields.read<diffusion::Betas>("schedule", c.betas,
                                {{"linear", diffusion::Betas::linear}, {"cosine", diffusion::Betas::cosine}});
  fields.read("flip", c.flip);
  fields.read("overfit_batch", c.overfit_batch);
  fields.read("seed", c.seed);
  c.check();
}

double learning_rate(const TrainingConfig& config, std::int64_t step) {
  if (step <= config.warm_up)
    return config.learning_rate * static_cast<double>(step) / static_cast<double>(config.warm_up);
  const double steps_after_warm_up = static_cast<double>(step - config.warm_up - 1);
  const double decay_steps = std::max(1.0, static_cast<double>(config.steps - config.warm_up));
  if (config.decay == Decay::linear) return config.learning_rate * std::max(0.0, 1 - steps_after_warm_up / decay_steps);
  if (config.decay == Decay::cosine) {
    return config.learning_rate * 0.5 *
           (1 + std::cos(std::numbers::pi * std::min(1.0, steps_after_warm_up / decay_steps)));
  }
  return config.learning_rate;
}

double ema_rate(const TrainingConfig& config, std::int64_t step) {
  if (!config.ema_ramp) return config.ema_rate;
  constexpr double kHalfLifeFraction = 0.05;  // of the images seen: the average's half-life (Karras et al. 2024)
  return std::min(config.ema_rate, std::pow(0.5, 1 / (kHalfLifeFraction * static_cast<double>(step))));
}

std::int32_t time_step(std::uint64_t seed, std::int64_t step, int i) {
  const std::uint64_t bits = splitmix64(splitmix64(splitmix64(seed ^ 0x74696d65) + step) + i);
  return static_cast<std::int32_t>((bits >> 32) * diffusion::kTimesteps >> 32);
}

EpsilonInputs epsilon_inputs(const TrainingConfig& config, std::int64_t step) {
  EpsilonInputs inputs{.seed = static_cast<std::int64_t>(config.seed), .offset = step};
  for (int i = 0; i < config.batch; ++i) inputs.t.push_back(time_step(config.seed, step, i));
  return inputs;
}

EpsilonInputs rows_of(EpsilonInputs batch, int first, int count) {
  batch.first = first;
  batch.t = {batch.t.begin() + first, batch.t.begin() + first + count};
  return batch;
}

optimizer::Hyper hyper(const TrainingConfig& config, std::int64_t step) {
  return {.lr = static_cast<float>(learning_rate(config, step)),
          .one_minus_beta1 = static_cast<float>(1 - config.beta1),
          .one_minus_beta2 = static_cast<float>(1 - config.beta2),
          .eps = static_cast<float>(config.eps),
          .weight_decay = static_cast<float>(config.weight_decay),
          .one_minus_ema_rate = static_cast<float>(1 - ema_rate(config, step)),
          .step = static_cast<float>(step),
          .max_norm = static_cast<float>(config.clip)};
}

EpsilonOptions epsilon_options(const TrainingConfig& config, int images) {
  return {.dtype = config.dtype,
          .batch = config.batch,
          .micro_batches = config.micro_batches,
          .betas = config.betas,
          .images = images};
}

}  // namespace ladder::train

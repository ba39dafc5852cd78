#include "train/training_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <nlohmann/json.hpp>

#include "core/error.h"
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
  json.at("name").get_to(c.name);
  json.at("model").get_to(c.model);
  c.dtype = parse_dtype(json.at("dtype").get<std::string>()).value_or(Dtype::bf16);
  json.at("steps").get_to(c.steps);
  json.at("batch").get_to(c.batch);
  json.at("micro_batches").get_to(c.micro_batches);
  json.at("learning_rate").get_to(c.learning_rate);
  json.at("warm_up").get_to(c.warm_up);
  const auto decay = json.at("decay").get<std::string>();
  c.decay = decay == "linear" ? Decay::linear : decay == "cosine" ? Decay::cosine : Decay::constant;
  json.at("beta1").get_to(c.beta1);
  json.at("beta2").get_to(c.beta2);
  json.at("eps").get_to(c.eps);
  json.at("weight_decay").get_to(c.weight_decay);
  json.at("clip").get_to(c.clip);
  json.at("ema_rate").get_to(c.ema_rate);
  json.at("ema_ramp").get_to(c.ema_ramp);
  c.betas = json.at("schedule").get<std::string>() == "cosine" ? diffusion::Betas::cosine : diffusion::Betas::linear;
  json.at("flip").get_to(c.flip);
  json.at("overfit_batch").get_to(c.overfit_batch);
  json.at("seed").get_to(c.seed);
}

double learning_rate(const TrainingConfig& config, std::int64_t step) {
  if (step <= config.warm_up)
    return config.learning_rate * static_cast<double>(step) / static_cast<double>(config.warm_up);
  const double behind = static_cast<double>(step - config.warm_up - 1);
  const double whole = std::max(1.0, static_cast<double>(config.steps - config.warm_up));
  if (config.decay == Decay::linear) return config.learning_rate * std::max(0.0, 1 - behind / whole);
  if (config.decay == Decay::cosine) {
    return config.learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * std::min(1.0, behind / whole)));
  }
  return config.learning_rate;
}

double ema_rate(const TrainingConfig& config, std::int64_t step) {
  if (!config.ema_ramp) return config.ema_rate;
  constexpr double kShare = 0.05;  // of the images seen: the average's half-life (Karras et al. 2024)
  return std::min(config.ema_rate, std::pow(0.5, 1 / (kShare * static_cast<double>(step))));
}

std::int32_t time_step(std::uint64_t seed, std::int64_t step, int i) {
  const std::uint64_t bits = splitmix64(splitmix64(splitmix64(seed ^ 0x74696d65) + step) + i);
  return static_cast<std::int32_t>((bits >> 32) * diffusion::kTimesteps >> 32);
}

DenoisingInputs denoising_inputs(const TrainingConfig& config, std::int64_t step) {
  DenoisingInputs inputs{.seed = static_cast<std::int64_t>(config.seed), .offset = step};
  for (int i = 0; i < config.batch; ++i) inputs.t.push_back(time_step(config.seed, step, i));
  return inputs;
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

DenoisingOptions denoising_options(const TrainingConfig& config, int images) {
  return {.dtype = config.dtype,
          .batch = config.batch,
          .micro_batches = config.micro_batches,
          .betas = config.betas,
          .images = images};
}

}  // namespace ladder::train

// What defines a training: its model, its hyperparameters, and every number that a step is given, which follows from these
// and the step's number, so that a training that was interrupted goes on as if it had not been.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "dev/optimizer/optimizer.h"
#include "nn/models/unet2d_config.h"
#include "train/denoising.h"

namespace ladder::train {

enum class Decay { constant, linear, cosine };

struct TrainingConfig {
  std::string name = "unet64";
  nn::Unet2dConfig model;
  Dtype dtype = Dtype::bf16;
  std::int64_t steps = 20000;
  int batch = 32;
  int micro_batches = 1;
  double learning_rate = 1e-4;
  std::int64_t warm_up = 0;       // steps over which the learning rate grows to that
  Decay decay = Decay::constant;  // over all steps after the warm-up, to zero
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double clip = 1;           // the gradient's largest norm; 0: not clipped
  double ema_rate = 0.9999;  // of the weights' moving average, at most
  bool ema_ramp = true;      // shorter at first: a half-life of at most 5 % of the images seen
  diffusion::Betas betas = diffusion::Betas::linear;
  bool flip = false;           // every other image mirrored, at random
  bool overfit_batch = false;  // the first batch, again and again
  std::uint64_t seed = 0;

  void check() const;  // throws UsageError
};

void to_json(nlohmann::json& json, const TrainingConfig& config);
void from_json(const nlohmann::json& json, TrainingConfig& config);  // throws UsageError

// Learning rate and rate of the moving average of step `step`, the first being 1.
double learning_rate(const TrainingConfig& config, std::int64_t step);
double ema_rate(const TrainingConfig& config, std::int64_t step);

// The time step of image `i` of a batch, uniform from 0 to 999; splitmix64 of seed, step and i.
std::int32_t time_step(std::uint64_t seed, std::int64_t step, int i);

// Everything that step `step` is given: its batch but for the images, and what the update takes.
DenoisingInputs denoising_inputs(const TrainingConfig& config, std::int64_t step);
optimizer::Hyper hyper(const TrainingConfig& config, std::int64_t step);

// What a training's objective is made of, on a data set of `images` images.
DenoisingOptions denoising_options(const TrainingConfig& config, int images);

}  // namespace ladder::train

// Configuration of a training: model and hyperparameters. All inputs of a step follow from the configuration and the
// step's number, so that an interrupted training resumes as if it had not been interrupted.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "dev/optimizer/optimizer.h"
#include "nn/models/unet2d_config.h"
#include "train/epsilon_objective.h"

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
  std::int64_t warm_up = 0;       // steps over which the learning rate grows linearly to learning_rate
  Decay decay = Decay::constant;  // to zero, over all steps after the warm-up
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double clip = 1;           // maximum global norm of the gradients; 0: no clipping
  double ema_rate = 0.9999;  // maximum decay rate of the weights' moving average
  bool ema_ramp = true;      // limit the average's half-life to 5 % of the images seen
  diffusion::Betas betas = diffusion::Betas::linear;
  bool flip = false;           // mirror images left to right with probability 1/2
  bool overfit_batch = false;  // train on the first batch in every step
  std::uint64_t seed = 0;

  void check() const;  // throws UsageError
};

void to_json(nlohmann::json& json, const TrainingConfig& config);
void from_json(const nlohmann::json& json, TrainingConfig& config);  // throws UsageError

// Learning rate and decay rate of the moving average in step `step`; the first step is 1.
double learning_rate(const TrainingConfig& config, std::int64_t step);
double ema_rate(const TrainingConfig& config, std::int64_t step);

// The time step of image `i` of a batch, uniform from 0 to 999; splitmix64 of seed, step and i.
std::int32_t time_step(std::uint64_t seed, std::int64_t step, int i);

// Inputs of step `step`: the batch except its images, and the hyperparameters of the update.
EpsilonInputs epsilon_inputs(const TrainingConfig& config, std::int64_t step);
// The inputs of `count` images of a batch from `first` on, as one rank takes them.
EpsilonInputs rows_of(EpsilonInputs batch, int first, int count);
optimizer::Hyper hyper(const TrainingConfig& config, std::int64_t step);

// Options of a training's objective, for a data set of `images` images on the device.
EpsilonOptions epsilon_options(const TrainingConfig& config, int images);

}  // namespace ladder::train

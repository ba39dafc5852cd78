// A U-Net small enough for the emulator, with everything else that a step needs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend.h"
#include "nn/models/unet2d.h"
#include "train/step.h"
#include "train/training_config.h"

namespace ladder::train::test {

// Two levels with 64 and 128 channels, 8x8 images, attention at 4x4; four images.
class Tiny {
 public:
  static constexpr int kImages = 4;

  // `batch` and `micro_batches` are of this process: of a rank, if the options have a communicator.
  explicit Tiny(Dtype dtype, int micro_batches = 1, bool graph = false, const std::string& use = {}, int batch = 2,
                StepOptions options = {}, const nn::Unet2dConfig& model_config = nn::unet2d_config("tiny"))
      : config{.name = "tiny", .model = model_config, .dtype = dtype, .batch = batch, .micro_batches = micro_batches},
        model(config.model),
        parameters(model.declare()),
        state(parameters, dtype),
        pixels("pixels", kImages * config.model.image_elements()),
        promotions(Promotions::for_device(backend::device().slug)),
        objective(epsilon_options(config, kImages), model, pixels) {
    config.learning_rate = 1e-3;
    std::vector<unsigned char> bytes(pixels.bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 2654435761u >> 24);
    backend::copy_in(pixels.base, bytes.data(), bytes.size());
    set(random_weights());
    if (!use.empty()) promotions.use(use);
    options.dtype = dtype;
    options.graph = graph;
    step = std::make_unique<Step>(options, objective, parameters, state, promotions);
  }

  void set(const std::vector<float>& weights) {
    state.set_values(weights);
    state.set(state.average, weights);
  }

  // Returns the initial weights, with small values in place of zeros: behind layers of zeros most gradients are zero.
  std::vector<float> random_weights() const {
    std::vector<float> weights = parameters.initial(7);
    for (const nn::Parameter& p : parameters.all()) {
      if (p.start != nn::Parameter::Start::zeros) continue;
      for (std::int64_t i = 0; i < p.elements(); ++i) {
        weights[p.begin + i] = 0.05f * static_cast<float>((p.begin + i) * 2654435761u % 2001) / 1000.0f - 0.05f;
      }
    }
    return weights;
  }

  // Returns a batch of distinct images, one of them mirrored, and distinct time steps.
  EpsilonInputs batch(std::int64_t number = 1) const {
    EpsilonInputs in = epsilon_inputs(config, number);
    in.index = {static_cast<std::int32_t>(number % kImages), -1 - static_cast<std::int32_t>((number + 1) % kImages)};
    in.t = {0, 999};
    if (number > 1)
      in.t = {static_cast<std::int32_t>(37 * number % 1000), static_cast<std::int32_t>(611 * number % 1000)};
    return in;
  }
  StepInputs inputs(std::int64_t number = 1) const {
    return {.batch = batch(number).bytes(), .hyper = hyper(config, number)};
  }

  StepResults run(std::int64_t number = 1) {
    step->submit(inputs(number));
    return *step->collect();
  }

  TrainingConfig config;
  nn::Unet2d model;
  nn::Parameters parameters;
  nn::State state;
  OwnedRegion pixels;
  Promotions promotions;
  EpsilonObjective objective;
  std::unique_ptr<Step> step;
};

// ||a - b|| / ||b||
double distance(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace ladder::train::test

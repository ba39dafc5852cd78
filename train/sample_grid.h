// Images that a training draws with the moving average of its weights, each rank a part of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "nn/state.h"
#include "train/ranks.h"
#include "train/sampler.h"
#include "train/training_config.h"

namespace ladder::train {

class SampleGrid {
 public:
  // Weight copies, sampler and noise are separate from the training's. All arguments taken by reference must outlive
  // this object.
  SampleGrid(const TrainingConfig& config, bool graph, const nn::Model& model, const nn::Parameters& parameters,
             const nn::State& state, const Promotions& promotions, Ranks& ranks);

  // Draws images of the current average; rank 0 writes them to a PNG. Throws Failure where one is not finite. Collective.
  void draw(const std::filesystem::path& file);

 private:
  const TrainingConfig& config_;
  const nn::State& state_;
  Ranks& ranks_;
  int num_images_, images_of_rank_;
  std::unique_ptr<OwnedRegion> copies_;  // of the average, rounded; null: the model reads it in fp32
  Sampler sampler_;
};

}  // namespace ladder::train

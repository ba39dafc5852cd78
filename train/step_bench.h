// A model with its weights and data, and training steps built on them, for timing and explaining steps.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "nn/models/unet2d.h"
#include "train/dataset.h"
#include "train/image_source.h"
#include "train/ranks.h"
#include "train/run_folder.h"
#include "train/step.h"
#include "train/training_config.h"

namespace ladder::train {

class StepBench {
 public:
  // Each rank takes its part of every batch; collective. `ranks` must outlive this object.
  StepBench(const TrainingConfig& config, const TrainingOptions& options, Ranks& ranks);

  // The device's promoted versions, overridden by options.use.
  const Promotions& promotions() const { return promotions_; }
  // Builds a step. All steps share weights and data. `promotions` and this object must outlive the step.
  std::unique_ptr<Step> step(const Promotions& promotions) { return step(promotions, options_); }
  std::unique_ptr<Step> step(const Promotions& promotions, const StepOptions& options);
  const StepOptions& options() const { return options_; }

  // Submits training step `number` on `step`, with learning rate `lr` if given.
  std::optional<StepResults> submit(Step& step, int number, std::optional<float> lr = {});
  // Trains `warm_up` steps, then `count` steps; returns the mean time of the latter in seconds.
  double seconds_a_step(Step& step, int warm_up, int count);

  std::size_t bytes() const { return objective_->bytes() + state_.bytes() + source_->pixels().bytes; }  // without steps

 private:
  TrainingConfig config_;
  Ranks& ranks_;
  Dataset data_;
  nn::Unet2d model_;
  nn::Parameters parameters_;
  Promotions promotions_;
  StepOptions options_;
  nn::State state_;
  std::unique_ptr<ImageSource> source_;
  std::optional<EpsilonObjective> objective_;
};

// Common fields of every record of step times: schema, UTC time, commit, device and training configuration.
nlohmann::json record_of(const TrainingConfig& config, const char* schema);

}  // namespace ladder::train

// A model, its weights and its data, with steps made on them: for what says how long a step takes or what it is made of.
#pragma once

#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "nn/models/unet2d.h"
#include "train/dataset.h"
#include "train/image_source.h"
#include "train/run_folder.h"
#include "train/step.h"
#include "train/training_config.h"

namespace ladder::train {

class StepBench {
 public:
  StepBench(const TrainingConfig& config, const TrainingOptions& options);

  // The device's promotions with options.use.
  const Promotions& promotions() const { return promotions_; }
  // A step, which shares weights and data with the others; `promotions` and this must outlive it.
  std::unique_ptr<Step> step(const Promotions& promotions) { return step(promotions, options_); }
  std::unique_ptr<Step> step(const Promotions& promotions, const StepOptions& options);
  const StepOptions& options() const { return options_; }

  // Submits training step `number` on `step`, with another learning rate if there is one.
  std::optional<StepResults> submit(Step& step, int number, std::optional<float> lr = {});
  // Trains `warm_up` steps, then `count` of which the mean time in seconds is returned.
  double seconds_a_step(Step& step, int warm_up, int count);

  std::size_t bytes() const { return objective_.bytes() + state_.bytes() + source_.pixels().bytes; }  // without steps

 private:
  TrainingConfig config_;
  StepOptions options_;
  Dataset data_;
  nn::Unet2d model_;
  nn::Parameters parameters_;
  nn::State state_;
  Promotions promotions_;
  ImageSource source_;
  Denoising objective_;
};

// What every record of a step's time begins with: when, of which commit, on what, of which training.
nlohmann::json record_of(const TrainingConfig& config, const char* schema);

}  // namespace ladder::train

// Detection of a diverged training: many skipped updates in a row, or a loss that jumps and stays high.
#pragma once

#include <cstdint>
#include <string>

#include "train/step.h"

namespace ladder::train {

class Divergence {
 public:
  // `advice` is appended to every message: the checkpoint to resume from.
  explicit Divergence(std::string advice, std::int64_t skipped = 0) : advice_(std::move(advice)), skipped_(skipped) {}

  // Looks at the results of the next step, in order. Throws Failure where the training has diverged; `step` is for the
  // message. Returns whether the step updated the parameters.
  bool look_at(const StepResults& results, std::int64_t step);

  std::int64_t skipped() const { return skipped_; }  // updates skipped since the training began

  static constexpr std::int64_t kMaxSkippedInARow = 20;

 private:
  std::string advice_;
  std::int64_t skipped_;
  std::int64_t skipped_in_a_row_ = 0;
  double slow_loss_ = 0;   // moving average of the loss over about 500 steps
  double quick_loss_ = 0;  // over about 10 steps; far above slow_loss_ means that the training has diverged
};

}  // namespace ladder::train

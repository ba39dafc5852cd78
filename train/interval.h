// Figures of the steps since the last line of the log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/step.h"

namespace ladder::train {

struct Interval {
  std::int64_t steps = 0;
  double loss = 0;
  double norm = 0;
  double quartile_loss[4] = {};
  std::int64_t quartile_images[4] = {};

  // Adds a step's results; `t` [batch]: the time steps of its images.
  void add(const StepResults& results, const std::vector<std::int32_t>& t);
};

// Returns "2 h 05 min", "3 min 20 s" or "12 s".
std::string duration(double seconds);

}  // namespace ladder::train

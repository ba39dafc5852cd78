// What a step is made of: which version runs every operation and why, and where its time goes.
#pragma once

#include <filesystem>

#include "runtime/program.h"
#include "train/training.h"

namespace ladder::train {

// explain() of a training's step. Returns the exit status.
int explain(const TrainingConfig& config, const TrainingOptions& options);

// Trains a few steps, then says where the time of the step's graph goes (step_times.h). Writes `file`, schema
// ladder.budget/1, of which tools/readme/train_budget.py makes the table of train/README.md. Returns the exit status.
int budget(const TrainingConfig& config, const TrainingOptions& options, const std::filesystem::path& file);

}  // namespace ladder::train

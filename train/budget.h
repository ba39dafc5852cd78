// Reports on a training step: the version chosen for each operation with the reason, and the time of each operation.
#pragma once

#include <filesystem>

#include "runtime/program.h"
#include "train/training.h"

namespace ladder::train {

// Prints the operations of a training step and their versions with explain(). Returns the exit status.
int explain(const TrainingConfig& config, const TrainingOptions& options);

// Trains a few steps, then times the operations of the step's graph (step_times.h) and writes them to `file`, schema
// ladder.budget/1. tools/readme/train_budget.py makes the table of train/README.md from it. Returns the exit status.
int budget(const TrainingConfig& config, const TrainingOptions& options, const std::filesystem::path& file);

}  // namespace ladder::train

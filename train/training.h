// A training from beginning to end: image order, log, checkpoints and samples.
#pragma once

#include "train/ranks.h"
#include "train/run_folder.h"
#include "train/step.h"
#include "train/training_config.h"

namespace ladder::train {

// Throws UsageError unless `ranks` ranks can take equal parts of each micro-batch and sum gradients as asked.
void check_batch(const TrainingConfig& config, const TrainingOptions& options, int ranks);
// Options of a training's step. `communicator` null: one rank.
StepOptions step_options(const TrainingConfig& config, const TrainingOptions& options, Communicator* communicator);

// Trains and prints progress. Writes log.jsonl, checkpoints/ and samples/ in options.out. Returns true if the training
// reached its last step, false if a signal ended it, after writing a checkpoint.
// Every rank calls it, with the same arguments; only rank 0 prints and writes.
bool train(TrainingConfig config, const TrainingOptions& options, Ranks& ranks);
bool train(TrainingConfig config, const TrainingOptions& options);  // one rank

}  // namespace ladder::train

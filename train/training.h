// A training from beginning to end: which images, what is logged, kept and drawn on the way.
#pragma once

#include "train/run_folder.h"
#include "train/training_config.h"

namespace ladder::train {

// Trains, printing its progress. Writes to options.out: log.jsonl, checkpoints/, samples/. Returns true if it came to
// its end, false if a signal ended it (a checkpoint was written then).
bool train(TrainingConfig config, const TrainingOptions& options);

}  // namespace ladder::train

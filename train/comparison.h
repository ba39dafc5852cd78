// A/B comparison: training steps that differ in versions or in a switch, timed in one process to see a version's effect
// on the step.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "train/ranks.h"
#include "train/run_folder.h"
#include "train/training_config.h"

namespace ladder::train {

struct Side {
  std::string name;      // "conv3x3/fprop=v09", as typed
  std::string use;       // for Promotions::use(); empty: the promoted versions
  bool overlap = true;   // launches may overlap (core/dependent_launch.h)
  bool early = true;     // weights may be loaded before the kernel in front has ended (runtime/early_weights.h)
  bool branches = true;  // StepOptions
  bool batches = true;

  // The rest needs several ranks; empty: as the program's flags say.
  bool alone = false;  // each rank steps on its part of the batch, without sums
  std::optional<bool> sums_beside;
  std::optional<int> buckets;
  std::optional<Dtype> reduce;

  bool operator==(const Side&) const = default;
};

// Parses --compare: "conv3x3/fprop=v09,v14" gives two sides. Several keys, each with the same number of values, change
// together: the second side of "conv3x3/fprop=v09,v14,conv3x3/dgrad=v10,v12" has v14 and v12. The value `promoted`
// keeps the promoted version of a pass; the keys `overlap`, `early`, `branches` and `batches` take on and off. Keys of
// several ranks: `ranks` all and alone, `sums` beside and after, `reduce` fp32 and bf16, `buckets` a number. Throws
// UsageError.
std::vector<Side> sides_of(std::string_view text);

// Replays the sides' graphs in turn, `rounds` times forth and back (A B B A), and writes every time to `file`, schema
// ladder.step-comparison/1, which `./ladder train --compare` judges. Ranks begin each replay together; those of the slowest
// rank count, and rank 0 writes. Throws Failure where a version of a side runs no operation of the step. Returns the exit
// status.
int compare(const TrainingConfig& config, const TrainingOptions& options, const std::string& text, int rounds,
            const std::filesystem::path& file, Ranks& ranks);

}  // namespace ladder::train

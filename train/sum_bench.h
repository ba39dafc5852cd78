// Times of the sums of gradients over ranks: in a replayed step, beside the backward pass, and alone.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "train/ranks.h"
#include "train/step.h"

namespace ladder::train {

// Lets the ranks' streams go on together. Collective.
class Barrier {
 public:
  explicit Barrier(Ranks& ranks) : communicator_(ranks.communicator()), word_("a barrier's word", sizeof(float)) {}
  void enqueue(Stream stream) { communicator_->all_reduce(word_.base, 1, Dtype::f32, stream); }

 private:
  Communicator* communicator_;
  OwnedRegion word_;
};

// Replays `step`, built with time_sums, and returns the fields of a side's "sum_times" (results/SCHEMA.md), in
// microseconds, each the median of `replays`. Collective.
nlohmann::json time_sums(const Step& step, Ranks& ranks, int replays);

}  // namespace ladder::train

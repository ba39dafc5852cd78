// What follows the gradients in a training step: AdamW with clipping, moving average and copies (dev/optimizer).
#pragma once

#include "nn/state.h"
#include "runtime/tape.h"

namespace ladder::nn {

// hyper [8] fp32, an optimizer::Hyper; norm and scale [1] fp32 are written: the gradients' norm before clipping, and what
// they were multiplied by, 0 where they are not finite and nothing is updated.
struct UpdateValues {
  ValueId hyper, norm, scale;
};

// Appends the norm of `gradients`, which hold what Parameters lays out in fp32, and the update of `state`. `clip`: by the
// global norm, at Hyper::max_norm.
void append_update(Tape& tape, const Parameters& parameters, const State& state, const Region& gradients,
                   const UpdateValues& values, bool clip);

// Appends the sum of one of `parts` micro-batches' gradients into those of the batch, elements [begin, end) of a flat
// buffer, fp32: gradients += from / parts, and without what they held if `first`.
void append_accumulation(Tape& tape, const std::string& name, Dtype dtype, const Region& from, const Region& gradients,
                         std::int64_t begin, std::int64_t end, int parts, bool first);

}  // namespace ladder::nn

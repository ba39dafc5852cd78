// What follows the gradients in a training step: AdamW with clipping, moving average and copies (dev/optimizer).
#pragma once

#include "dev/optimizer/optimizer.h"
#include "nn/state.h"
#include "runtime/tape.h"

namespace ladder::nn {

// hyper [8] fp32, an optimizer::Hyper; norm and scale [1] fp32 are written: the gradients' norm before clipping, and what
// they were multiplied by, 0 where they are not finite and nothing is updated.
struct UpdateValues {
  ValueId hyper, norm, scale;
};

// Gradients to read, those of matrices in `dtype` (Parameters::gradient_offset).
struct Gradients {
  const Region* region;
  Dtype dtype;
};

// Append the norm of `gradients`, and then the update of `state`. `clip`: by the global norm, at Hyper::max_norm.
void append_norm(Tape& tape, const Parameters& parameters, const State& state, const Gradients& gradients,
                 const UpdateValues& values, bool clip);
void append_update(Tape& tape, const Parameters& parameters, const State& state, const Gradients& gradients,
                   const UpdateValues& values, bool clip);

// The problem of both where gradients of matrices are in `dtype`.
optimizer::Problem update_problem(const Parameters& parameters, const State& state, Dtype dtype, bool clip);

// Appends the sum of one of `parts` micro-batches' gradients, those of matrices in `dtype`, into those of the batch, all in
// fp32: gradients += from / parts, and without what they held if `first`.
void append_accumulation(Tape& tape, const Parameters& parameters, const Region& from, Dtype dtype,
                         const Region& gradients, int parts, bool first);

}  // namespace ladder::nn

// The optimizer part of a training step: AdamW with clipping, the moving average and the rounded copies
// (dev/optimizer).
#pragma once

#include <cstdint>
#include <vector>

#include "dev/optimizer/optimizer.h"
#include "nn/state.h"
#include "runtime/tape.h"

namespace ladder::nn {

// Values of an update. Input: hyper [8] fp32, an optimizer::Hyper. Outputs: norm [1] fp32, the gradients' norm before
// clipping, and scale [1] fp32, their factor, which is 0 where the norm is not finite and nothing is updated.
struct UpdateValues {
  ValueId hyper, norm, scale;
};

// Gradients to read. Those of matrices are in `dtype`, the others in fp32 (Parameters::gradient_offset).
struct Gradients {
  const Region* region;
  Dtype dtype;
};

// append_norm() appends the norm of `gradients`, append_update() the update of `state` that follows it. `clip`: clip
// gradients by their global norm at Hyper::max_norm.
void append_norm(Tape& tape, const Parameters& parameters, const State& state, const Gradients& gradients,
                 const UpdateValues& values, bool clip);
void append_update(Tape& tape, const Parameters& parameters, const State& state, const Gradients& gradients,
                   const UpdateValues& values, bool clip);

// The problem of norm and update where gradients of matrices are in `dtype`.
optimizer::Problem update_problem(const Parameters& parameters, const State& state, Dtype dtype, bool clip);

// Elements [begin, end) of flat gradients: of matrices, or of the others.
struct GradientRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Appends the accumulation of one of `parts` parts of a batch, an operation a range: gradients += from / parts, or
// gradients = from / parts if `first`. `from` has gradients of matrices in `dtype`; `gradients`, the batch's, are all fp32.
void append_accumulation(Tape& tape, const Parameters& parameters, const std::vector<GradientRange>& ranges,
                         const Region& from, Dtype dtype, const Region& gradients, int parts, bool first);

}  // namespace ladder::nn

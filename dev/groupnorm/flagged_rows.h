// Sums for dgamma and dbeta that a kernel leaves with ready flags, and a second kernel (parameter_gradients.cu) adds up while
// the first one still runs.
#pragma once

#include "dev/common/ready_flag.h"
#include "dev/groupnorm/groupnorm.h"

namespace ladder::groupnorm {

// Of a channel of an image: terms of dbeta and dgamma.
struct FlaggedRow {
  volatile Flagged dbeta, dgamma;
};

// The kernel `first`, which leaves rows [n][c], then the one that adds them up; `first` alone without affine parameters.
BoundLaunch with_parameters(BoundLaunch first, const Problem& p, FlaggedRow* rows, const Backward::Tensors& t);

}  // namespace ladder::groupnorm

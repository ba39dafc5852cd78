// Rows of terms of dgamma and dbeta, stored with ready flags by one kernel and added up by a second one
// (parameter_gradients.cu) while the first still runs.
#pragma once

#include "dev/common/ready_flag.h"
#include "dev/groupnorm/groupnorm.h"

namespace ladder::groupnorm {

// Terms of dbeta and dgamma from one channel of one image.
struct FlaggedRow {
  volatile Flagged dbeta, dgamma;
};

// Returns `first`, which stores rows [n][c], followed by the kernel that adds them up; without affine parameters
// `first` alone.
BoundLaunch with_parameters(BoundLaunch first, const Problem& p, FlaggedRow* rows, const Backward::Tensors& t);

}  // namespace ladder::groupnorm

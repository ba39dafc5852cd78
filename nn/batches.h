// Batching of weight gradients: nothing reads them until the end of the step, so layers of the same shape share one
// operation.
#pragma once

#include "runtime/promoted.h"
#include "runtime/tape.h"

namespace ladder::nn {

// Replaces conv3x3/wgrad and gemm/wgrad operations of the same problem by one wgrad_batch operation of that layer, at
// the place of the group's last member. Only 16-bit types are batched. A group holds inputs of at most 64 MiB, because
// it keeps them alive. A group with too few weights to occupy most SMs is not formed. Operations stay unbatched where
// --use names a version of the layer's wgrad, or the naive version of its wgrad_batch.
Tape with_batches(Tape tape, const Promotions& promotions);

}  // namespace ladder::nn

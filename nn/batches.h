// Weights' gradients that nobody waits for until the step's end: those of layers of one shape run as one operation.
#pragma once

#include "runtime/promoted.h"
#include "runtime/tape.h"

namespace ladder::nn {

// The tape with operations of conv3x3/wgrad and gemm/wgrad that have the same problem put together as the layers'
// wgrad_batch, each group where its last member was; 16-bit types only. A group ends where its inputs, which it keeps alive,
// come to 64 MiB, and is none where its weights are too few for blocks on most SMs. Where --use names a version for a layer's
// wgrad, or the naive one for its wgrad_batch, operations stay as they were.
Tape with_batches(Tape tape, const Promotions& promotions);

}  // namespace ladder::nn

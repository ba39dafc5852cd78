// Weights that the kernels of a tape may load before the kernel in front has ended (core/early_tensors.h).
#pragma once

#include <vector>

#include "runtime/tape.h"

namespace ladder {

// Returns the addresses of such weights, by operation: those in a region of which no operation before has written a byte.
// `addresses` are the values'. The first two operations load none early: one after the tape, or another program in front
// of it, may write weights, and is then two launches back.
std::vector<std::vector<const void*>> early_weights(const Tape& tape, const std::vector<void*>& addresses);

}  // namespace ladder

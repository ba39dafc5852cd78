// A reduction split over blocks whose partial sums a second kernel adds.
#pragma once

#include "core/device.h"

namespace ladder {

// Split i has units i * units_per_split to (i + 1) * units_per_split - 1 of the reduction. A unit is a step of the kernel's
// loop over K: a K block.
struct Split {
  int splits = 1;
  int units_per_split = 1;
};

// Returns the split into a single part.
inline Split unsplit(int units) { return {1, units}; }

// Two splits, or one where there is a single step: what tests of small problems run.
inline Split halves(int units) { return {ceil_div(units, ceil_div(units, 2)), ceil_div(units, 2)}; }

constexpr double kReduceNs = 1500;           // of the second kernel, whatever it adds
constexpr double kPartialBytesPerNs = 3000;  // of partial sums through L2

}  // namespace ladder

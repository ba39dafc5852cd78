// A reduction split over blocks whose partial sums a second kernel adds.
#pragma once

#include "core/device.h"

namespace ladder {

// Split i has units i * each to (i + 1) * each - 1 of the reduction, a unit being a step of the kernel's loop.
struct Split {
  int splits = 1;
  int each = 1;
};

inline Split whole(int units) { return {1, units}; }

// Two splits, or one where there is a single step: what tests of small problems run.
inline Split halves(int units) { return {ceil_div(units, ceil_div(units, 2)), ceil_div(units, 2)}; }

constexpr double kReduceNs = 1500;           // of the second kernel, whatever it adds
constexpr double kPartialBytesPerNs = 3000;  // of partial sums through L2

}  // namespace ladder

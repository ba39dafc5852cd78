// A step of the wgmma versions: 64 terms of the sums, and how long it takes.
#pragma once

#include <algorithm>

namespace ladder {

inline constexpr int kStepTerms16 = 64;  // 16 bits each: the 128 bytes of a swizzled row
inline constexpr int kStepRowBytes = 128;
inline constexpr int kWgmmaTerms = 16;

// Nanoseconds, roughly, of an H200, that a step takes a block: its bytes come at an SM's share of the L2's rate, and its
// rows x columns sums are multiplied at three quarters of the tensor cores' rate.
constexpr double step_ns(int stage_bytes, int rows, int columns) {
  return std::max(stage_bytes / 60.0, static_cast<double>(rows) * columns * kStepTerms16 / 2800);
}

}  // namespace ladder

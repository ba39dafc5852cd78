// The published geometry as constants, for the versions that are written for it: 3 channels, an 11x11 filter, stride 4,
// padding 2, and a multiple of 4 output channels, of whole runs of 16 bytes.
#pragma once

#include "dev/conv_stem/conv_stem.h"

namespace ladder::conv_stem {

inline constexpr int kFilter = 11;
inline constexpr int kChannels = 3;
inline constexpr int kStride = 4;
inline constexpr int kPad = 2;
inline constexpr int kFilterRow = kFilter * kChannels;  // consecutive floats of x, and of w
inline constexpr int kFilterSize = kFilter * kFilterRow;
inline constexpr int kPixelStep = kStride * kChannels;  // floats of x from one output's windows to the next one's

inline const char* published_only(const Problem& p) {
  if (p.c != kChannels || p.r != kFilter || p.stride != kStride || p.pad != kPad) {
    return "not the geometry c3 r11 stride4 pad2";
  }
  return p.k % 4 == 0 ? nullptr : "k is not a multiple of 4, of whole runs of 16 bytes";
}

}  // namespace ladder::conv_stem

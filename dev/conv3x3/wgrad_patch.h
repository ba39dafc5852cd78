// wgrad by patches: a patch of 8 x 8 pixels of dy meets the 10 x 10 pixels of x that its nine taps reach, so x is fetched
// 1.6 times instead of nine. A block owns 64 output channels x 64 input channels x all nine taps of dw.
#pragma once

#include "dev/conv3x3/patches.h"

namespace ladder::conv3x3 {

constexpr int kTileChannels = 64;  // of k, and of c

// Returns null, or the reason why the TMA cannot load the problem's patches.
inline const char* channels_for_tma(const Problem& p) {
  return p.c % 8 == 0 && p.k % 8 == 0 ? nullptr
                                      : "c or k is not a multiple of 16 bytes, which the TMA's strides must be";
}

inline int num_patch_tiles(const Problem& p) { return ceil_div(p.k, kTileChannels) * ceil_div(p.c, kTileChannels); }

}  // namespace ladder::conv3x3

// wgrad by patches: a patch of 8 x 8 pixels of dy meets the 10 x 10 pixels of x that its nine taps reach, so x is fetched
// 1.6 times instead of nine. A block owns 64 output channels x 64 input channels x all nine taps of dw.
#pragma once

#include "dev/conv3x3/wgrad_split.h"

namespace ladder::conv3x3 {

constexpr int kPatch = 8;
constexpr int kPatchPixels = kPatch * kPatch;
constexpr int kHalo = kPatch + 2;
constexpr int kHaloPixels = kHalo * kHalo;
constexpr int kTileChannels = 64;  // of k, and of c

// Where a patch lies; they are numbered columns fastest, then rows, then images.
struct PatchPosition {
  int image, row, col;

  __device__ __forceinline__ void advance(const Problem& p) {
    col += kPatch;
    if (col < p.w) return;
    col = 0;
    row += kPatch;
    if (row < p.h) return;
    row = 0;
    ++image;
  }
};
__device__ __forceinline__ PatchPosition patch_position(const Problem& p, int index) {
  const int patches_w = ceil_div(p.w, kPatch);
  const int patches_h = ceil_div(p.h, kPatch);
  return {index / patches_w / patches_h, index / patches_w % patches_h * kPatch, index % patches_w * kPatch};
}

inline int num_patches(const Problem& p) { return p.n * ceil_div(p.h, kPatch) * ceil_div(p.w, kPatch); }
inline int num_patch_tiles(const Problem& p) { return ceil_div(p.k, kTileChannels) * ceil_div(p.c, kTileChannels); }

}  // namespace ladder::conv3x3

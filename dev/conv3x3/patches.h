// An image as patches of 8 x 8 pixels, each with a halo of one pixel for its taps: a pixel is fetched 1.6 times instead
// of nine.
#pragma once

#include "core/numeric.h"
#include "dev/conv3x3/conv3x3.h"

namespace ladder::conv3x3 {

constexpr int kPatch = 8;
constexpr int kPatchPixels = kPatch * kPatch;
constexpr int kHalo = kPatch + 2;
constexpr int kHaloPixels = kHalo * kHalo;

// Position of a patch. Patches are numbered columns fastest, then rows, then images. A patch past the last one is in an
// image past the last image, where the TMA reads zeros.
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

__host__ __device__ inline int num_patches(const Problem& p) {
  return p.n * ceil_div(p.h, kPatch) * ceil_div(p.w, kPatch);
}

}  // namespace ladder::conv3x3

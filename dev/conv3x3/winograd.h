// Winograd's F(4x4, 3x3), shared by its versions: images are cut into patches of 4 x 4 outputs, each of which depends
// on 6 x 6 inputs (Lavin and Gray 2016, section 4.1).
#pragma once

#include "core/device.h"
#include "dev/conv3x3/conv3x3.h"

namespace ladder::conv3x3::winograd {

constexpr int kOut = 4;             // a patch of y, or of dy, is 4 x 4
constexpr int kIn = kOut + 2;       // of x 6 x 6
constexpr int kPoints = kIn * kIn;  // products a patch and pair of channels

inline int patches_per_image(const Problem& p) { return ceil_div(p.h, kOut) * ceil_div(p.w, kOut); }

// One slab's patches, numbered (image, row, column) from its first image.
struct Slab {
  int image0, images;
  int patches_h, patches_w;
  __host__ __device__ int patches() const { return images * patches_h * patches_w; }
};

// B^T d of Lavin and Gray, along one dimension.
__device__ __forceinline__ void transform_input(const float (&d)[kIn], float (&t)[kIn]) {
  t[0] = 4 * d[0] - 5 * d[2] + d[4];
  t[1] = -4 * (d[1] + d[2]) + d[3] + d[4];
  t[2] = 4 * (d[1] - d[2]) - d[3] + d[4];
  t[3] = 2 * (d[3] - d[1]) - d[2] + d[4];
  t[4] = 2 * (d[1] - d[3]) - d[2] + d[4];
  t[5] = 4 * d[1] - 5 * d[3] + d[5];
}

}  // namespace ladder::conv3x3::winograd

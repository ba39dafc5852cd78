// One element of the convolution, straight from the formula: what the first version of each pass computes.
#pragma once

#include "core/device.h"
#include "dev/conv_stem/conv_stem.h"

namespace ladder::conv_stem {

__device__ inline float one_output(const Problem& p, const float* x, const float* w, const float* bias, int n, int row,
                                   int col, int k) {
  float sum = bias ? bias[k] : 0.0f;
  for (int i = 0; i < p.r; ++i) {
    const int x_row = row * p.stride + i - p.pad;
    if (x_row < 0 || x_row >= p.h) continue;
    for (int j = 0; j < p.r; ++j) {
      const int x_col = col * p.stride + j - p.pad;
      if (x_col < 0 || x_col >= p.w) continue;
      const float* x_tap = x + ((n * p.h + x_row) * p.w + x_col) * p.c;
      const float* w_tap = w + ((k * p.r + i) * p.r + j) * p.c;
      for (int c = 0; c < p.c; ++c) sum += x_tap[c] * w_tap[c];
    }
  }
  return sum;
}

}  // namespace ladder::conv_stem

// The convolution with a fault, for the cheats of both passes, and what they are tried on.
#pragma once

#include <string>
#include <vector>

#include "dev/conv_stem/conv_stem.h"
#include "tests/wrong/wrong.h"

namespace ladder::conv_stem {

// The published geometry, then another with more channels, images that are not square, and a filter without padding.
inline std::vector<std::string> wrong_problems() {
  return {"n1 h23 w19 c3 k32 r11 stride4 pad2 bias", "n2 h11 w14 c5 k8 r3 stride2 pad1",
          "n1 h12 w10 c2 k6 r4 stride3 pad0 bias"};
}

enum class Fault {
  none,
  less_padding,    // windows begin a pixel further on
  clamped_border,  // the nearest pixel of the image for what lies outside
  wrapped_border,  // the neighbour in memory for what lies outside
  smaller_stride,
  exchanged_axes,  // the filter's columns for its rows
  flipped_filter,  // convolves where the layer correlates
  last_column,     // leaves out the filter's last column
  last_channel,    // and the last channel of it
  no_bias,
  bf16_sum,  // rounds between additions
};

template <Fault kFault>
__device__ float faulty_sum(const auto& v, long long image, int row, int col, int k) {
  const Problem& p = v.p;
  const int stride = kFault == Fault::smaller_stride ? p.stride - 1 : p.stride;
  const int pad = kFault == Fault::less_padding ? p.pad - 1 : p.pad;
  float sum = v.t.bias && kFault != Fault::no_bias ? v.t.bias[k] : 0.0f;
  for (int i = 0; i < p.r; ++i) {
    for (int j = 0; j < p.r; ++j) {
      int x_row = row * stride + i - pad;
      int x_col = col * stride + j - pad;
      if (kFault == Fault::clamped_border) {
        x_row = min(max(x_row, 0), p.h - 1);
        x_col = min(max(x_col, 0), p.w - 1);
      }
      if (kFault == Fault::wrapped_border && x_row >= 0 && x_row < p.h) {
        const int pixel = min(max(x_row * p.w + x_col, 0), p.h * p.w - 1);
        x_row = pixel / p.w;
        x_col = pixel % p.w;
      }
      if (x_row < 0 || x_row >= p.h || x_col < 0 || x_col >= p.w) continue;
      if (kFault == Fault::last_column && j == p.r - 1) continue;
      int tap = i * p.r + j;
      if (kFault == Fault::exchanged_axes) tap = j * p.r + i;
      if (kFault == Fault::flipped_filter) tap = p.r * p.r - 1 - tap;
      for (int c = 0; c < p.c; ++c) {
        if (kFault == Fault::last_channel && j == p.r - 1 && c == p.c - 1) continue;
        sum += v.load(v.t.x, ((image * p.h + x_row) * p.w + x_col) * p.c + c) *
               v.load(v.t.w, (static_cast<long long>(k) * p.r * p.r + tap) * p.c + c);
        if (kFault == Fault::bf16_sum) sum = to_float(from_float<__nv_bfloat16>(sum));
      }
    }
  }
  return sum;
}

}  // namespace ladder::conv_stem

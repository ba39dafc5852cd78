// Problems for the cheats of conv3x3, element counts of its tensors, and permutations of the weights.
#pragma once

#include <string>
#include <vector>

#include "dev/conv3x3/conv3x3.h"

namespace ladder::conv3x3 {

// Problems: a square and benign one, then odd sizes and channels, an image that is not square, the first and last
// layers' three channels.
inline std::vector<std::string> wrong_problems() {
  return {"n1 h8 w8 c16 k16",
          "n2 h8 w8 c16 k32 bias",
          "n1 h7 w9 c21 k13 bias",
          "n1 h4 w12 c8 k8 bias",
          "n2 h5 w5 c3 k24",
          "n1 h6 w5 c24 k3",
          "n2 h3 w5 c8 k24 bias params16",
          "n3 h3 w5 c8 k24 bias embedding residual",
          "n2 h3 w4 c8 k16 embedding40 first11"};
}

inline long long size_x(const Problem& p) { return p.pixels() * p.c; }
inline long long size_y(const Problem& p) { return p.pixels() * p.k; }
inline long long size_w(const Problem& p) { return 9LL * p.k * p.c; }

// Index in layout [c, 3, 3, k] of the element at index i in layout [k, 3, 3, c].
struct Transposed {
  __device__ long long operator()(const Problem& p, long long i) const {
    return (i % p.c * 9 + i / p.c % 9) * p.k + i / p.c / 9;
  }
};

// Index of the element with the taps in reverse order.
struct FlippedTaps {
  __device__ long long operator()(const Problem& p, long long i) const { return i + (8 - i / p.c % 9 * 2) * p.c; }
};

}  // namespace ladder::conv3x3

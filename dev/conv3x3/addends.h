// Addends of a convolution in a residual block, as kernel parameters: bias, embedding and residual.
#pragma once

#include "dev/conv3x3/conv3x3.h"

namespace ladder::conv3x3 {

template <class T>
struct Addends {
  const float* bias = nullptr;  // [k], or null
  const float* e = nullptr;     // [n][pitch], from its first column on, or null
  int pitch = 0;
  const T* residual = nullptr;  // [n, h, w, k], or null

  static Addends of(const Problem& p, const Fprop::Tensors& t) {
    return {.bias = t.bias,
            .e = t.e ? t.e + p.first : nullptr,
            .pitch = p.embedding,
            .residual = static_cast<const T*>(t.r)};
  }
};

}  // namespace ladder::conv3x3

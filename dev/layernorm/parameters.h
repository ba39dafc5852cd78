// gamma and beta of a vector of a row.
#pragma once

#include "core/device.h"
#include "dev/common/quads.h"

namespace ladder::layernorm {

// Elements of `kWidth` columns, from vector `index` on, of gamma or beta.
template <int kWidth>
__device__ __forceinline__ void load_parameters(const float* parameters, unsigned index, float (&values)[kWidth]) {
  if constexpr (kWidth == 1) {
    values[0] = parameters[index];
  } else {
#pragma unroll
    for (int quad = 0; quad < kWidth / kQuad; ++quad) {
      float four[kQuad];
      load_quad(parameters + index * kWidth + quad * kQuad, four);
#pragma unroll
      for (int i = 0; i < kQuad; ++i) values[quad * kQuad + i] = four[i];
    }
  }
}

}  // namespace ladder::layernorm

// Terms of an element and its dx, for versions of the backward pass.
#pragma once

#include "core/device.h"
#include "dev/common/wide.h"
#include "dev/layernorm/layernorm.h"
#include "dev/layernorm/parameters.h"

namespace ladder::layernorm {

// Statistics of a row, left by the forward pass.
struct RowStatistics {
  float mean;
  float rstd;
};
__device__ __forceinline__ RowStatistics statistics_of(const Backward::Tensors& t, int row) {
  return {t.mean[row], t.rstd[row]};
}

__device__ __forceinline__ float xhat_of(float x, const RowStatistics& s) { return (x - s.mean) * s.rstd; }

// Add an element's terms to A and B; g is gamma * dy.
__device__ __forceinline__ void add_terms(float g, float xhat, float2& ab) {
  ab.x += g;
  ab.y = fmaf(g, xhat, ab.y);
}

// `means` are A / n and B / n.
__device__ __forceinline__ float dx_of(float g, float xhat, const RowStatistics& s, float2 means) {
  return s.rstd * (g - means.x - xhat * means.y);
}

// dx of a vector.
template <class T, int kWidth>
__device__ __forceinline__ Bits<T, kWidth> gradient(const Bits<T, kWidth>& x, const Bits<T, kWidth>& dy,
                                                    const float (&gamma)[kWidth], const RowStatistics& s,
                                                    float2 means) {
  float xs[kWidth];
  float dys[kWidth];
  to_floats<T>(x, xs);
  to_floats<T>(dy, dys);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) xs[i] = dx_of(gamma[i] * dys[i], xhat_of(xs[i], s), s, means);
  return from_floats<T>(xs);
}

}  // namespace ladder::layernorm

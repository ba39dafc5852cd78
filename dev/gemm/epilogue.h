// Epilogue: fprop adds bias and residual and applies SiLU, in this order; dgrad may add the gradient that x has
// already. Also addresses of output elements.
#pragma once

#include "dev/common/parameter_type.h"
#include "dev/gemm/gemm.h"
#include "dev/ptx/approximate.h"

namespace ladder::gemm {

// y = z / (1 + e^-z). If e^-z overflows to infinity, the quotient is 0.
__device__ __forceinline__ float silu(float z) {
  constexpr float kLog2E = 1.44269504088896341f;
  return z * ptx::reciprocal_approximate(1.0f + ptx::exp2_approximate(-kLog2E * z));
}

// P is the type of the bias.
template <class T, class P = float>
struct Epilogue {
  const P* bias = nullptr;      // [columns], or null
  const T* residual = nullptr;  // as the output, or null
  bool silu = false;

  __device__ __forceinline__ float operator()(float sum, int col, long long index) const {
    if (bias) sum += to_float(bias[col]);
    if (residual) sum += to_float(residual[index]);
    return silu ? gemm::silu(sum) : sum;
  }
};

template <class T, class P>
Epilogue<T, P> epilogue_of(const Problem& p, const Fprop::Tensors& t) {
  return {.bias = typed<P>(t.bias), .residual = static_cast<const T*>(t.r), .silu = p.silu};
}

template <class T>
Epilogue<T> epilogue_of(const Dgrad::Tensors& t) {
  return {.residual = static_cast<const T*>(t.r)};
}

// Address of element (row, col) of a result with `cols` columns.
template <class T>
__host__ __device__ __forceinline__ T* element_at(T* out, long long row, int col, int cols) {
  return out + row * cols + col;
}

// Returns true if every run of kVec columns is contiguous and starts at a multiple of kVec elements.
template <int kVec, class T>
__device__ __forceinline__ bool in_runs(T*, int cols) {
  return cols % kVec == 0;
}

}  // namespace ladder::gemm

// x and dgrad's result: with `split`, two matrices side by side.
#pragma once

#include "dev/gemm/epilogue.h"
#include "dev/gemm/gemm.h"

namespace ladder::gemm {

// The columns from `first_cols` on are the second's; of a matrix alone, first_cols is all of them.
template <class T>
struct ConcatOperand {
  T* first;   // [rows, first_cols]
  T* second;  // [rows, the other columns]
  int first_cols;
};

template <class T>
ConcatOperand<T> output_of(const Problem& p, const Dgrad::Tensors& t) {
  return {static_cast<T*>(t.dx), static_cast<T*>(t.dx_rest), p.split > 0 ? p.split : p.k};
}

// x, which every pass but dgrad reads.
template <class T, class Tensors>
ConcatOperand<const T> input_of(const Problem& p, const Tensors& t) {
  return {static_cast<const T*>(t.x), static_cast<const T*>(t.x_rest), p.split > 0 ? p.split : p.k};
}

template <class T>
__host__ __device__ __forceinline__ T* element_at(const ConcatOperand<T>& out, long long row, int col, int cols) {
  return col < out.first_cols ? out.first + row * out.first_cols + col
                              : out.second + row * (cols - out.first_cols) + (col - out.first_cols);
}

template <int kVec, class T>
__device__ __forceinline__ bool in_runs(const ConcatOperand<T>& out, int cols) {
  return cols % kVec == 0 && out.first_cols % kVec == 0;
}

}  // namespace ladder::gemm

// wgrad seen as a matrix product: what its implicit-GEMM versions share.
//
//     dW[k][(r, s, c)] = sum over pixels of  dy[pixel][k] * X[pixel][(r, s, c)]
//
// X is x, gathered: a column of it is an input channel under a tap. Both operands lie with the reduction outermost. A
// thread fetches the same columns at every pixel, so its tap is fixed; what changes is whether the tap lies inside.
#pragma once

#include "dev/conv3x3/wgrad_split.h"

namespace ladder::conv3x3 {

// Position of a pixel, advanced without a division.
struct PixelStep {
  int pixels, rows, cols;  // pixels = rows * w + cols, rows modulo h
};

__device__ __forceinline__ PixelStep pixel_step(const Problem& p, int pixels) {
  return {pixels, pixels / p.w % p.h, pixels % p.w};
}

struct PixelCursor {
  int pixel, row, col;

  __device__ __forceinline__ void advance(const Problem& p, const PixelStep& step) {
    pixel += step.pixels;
    col += step.cols;
    row += step.rows;
    if (col >= p.w) {
      col -= p.w;
      ++row;
    }
    if (row >= p.h) row -= p.h;
  }
};

__device__ __forceinline__ PixelCursor pixel_cursor(const Problem& p, int pixel) {
  return {pixel, pixel / p.w % p.h, pixel % p.w};
}

// A column of X: for a pixel it is found at element pixel * c + offset of x, if the neighbour lies inside the image.
struct Column {
  int offset;
  int row, col;  // of the neighbour, relative to the pixel

  __device__ __forceinline__ bool inside(const Problem& p, const PixelCursor& cursor) const {
    return static_cast<unsigned>(cursor.row + row) < static_cast<unsigned>(p.h) &&
           static_cast<unsigned>(cursor.col + col) < static_cast<unsigned>(p.w);
  }
};

__device__ __forceinline__ Column column_of(const Problem& p, int column) {
  constexpr int kNever = 1 << 24;  // more rows than any image has
  if (column >= 9 * p.c) return {0, kNever, 0};
  const int row = column / p.c / 3 - 1;
  const int col = column / p.c % 3 - 1;
  return {(row * p.w + col) * p.c + column % p.c, row, col};
}

}  // namespace ladder::conv3x3

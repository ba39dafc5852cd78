// A pass as one matrix product, C [rows, columns] = A B, every sum over `terms` terms.
//
//     fprop   y [m, n] over k    A = x: terms along its rows     B = w: terms along its rows, B is column-major
//     dgrad   dx [m, k] over n   A = dy: terms along its rows    B = w: terms down its columns, B is row-major
//     wgrad   dw [n, k] over m   A = dy: terms down its columns  B = x: terms down its columns
#pragma once

#include "core/device.h"

namespace ladder::gemm {

struct Product {
  int rows;
  int columns;
  int terms;

  __host__ __device__ long long count() const { return static_cast<long long>(rows) * columns; }
};

template <class Tile>
int num_tiles(const Product& c) {
  return ceil_div(c.rows, Tile::kBlockM) * ceil_div(c.columns, Tile::kBlockN);
}

}  // namespace ladder::gemm

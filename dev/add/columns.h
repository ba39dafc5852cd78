// Sums over an image's pixels, channel by channel, in a fixed order. A block takes a part of the pixels and a chunk of
// the channels: its threads are rows of columns, a column is a vector of channels (or a single one), and a thread adds
// every kRows-th pixel of its part. Rows are added up in shared memory, in order.
#pragma once

#include <algorithm>

#include "dev/add/add.h"
#include "dev/common/wide.h"

namespace ladder::add {

inline constexpr int kColumnThreads = 256;

struct ColumnSplit {
  int columns;          // of a chunk
  int chunks;           // of a pixel's columns
  int parts;            // of an image's pixels
  int pixels_per_part;  // the last part may have fewer
};

// Returns a split with as many parts as leave a thread `least` pixels, but at most `most`.
template <class T, int kWidth>
ColumnSplit column_split(const Problem& p, int least, int most) {
  ColumnSplit split{};
  const int all = p.c / kWidth;
  split.chunks = ceil_div(all, kColumnThreads);
  split.columns = ceil_div(all, split.chunks);
  const int rows = kColumnThreads / split.columns;
  split.parts = std::clamp(p.pixels() / (rows * least), 1, most);
  split.pixels_per_part = ceil_div(p.pixels(), split.parts);
  split.parts = ceil_div(p.pixels(), split.pixels_per_part);  // none is empty
  return split;
}

// Computes the sums of part `part` and chunk `chunk` of image `n`. If it returns true, sums[] holds the sums of the
// calling thread's column. Called by all threads of the block.
template <class T, int kWidth>
__device__ __forceinline__ bool sum_part(const Problem& p, const ColumnSplit& split, const T* dy, int n, int part,
                                         int chunk, float (&sums)[kWidth]) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int rows = kColumnThreads / split.columns;
  const int row = thread / split.columns;
  const int column = chunk * split.columns + thread % split.columns;
  const int all = p.c / kWidth;
  const int first = part * split.pixels_per_part;
  const int last = min(first + split.pixels_per_part, p.h * p.w);
  const unsigned image = static_cast<unsigned>(n) * (p.h * p.w) * all;

  // Add up the thread's pixels, with four in flight at a time.
#pragma unroll
  for (float& sum : sums) sum = 0;
  if (row < rows && column < all) {
    constexpr int kAtOnce = 4;
    for (int pixel = first + row; pixel < last; pixel += kAtOnce * rows) {
      Bits<T, kWidth> loaded[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (pixel + i * rows < last) loaded[i] = load_wide<kWidth>(dy, image + (pixel + i * rows) * all + column);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (pixel + i * rows >= last) break;
        float values[kWidth];
        to_floats<T, kWidth>(loaded[i], values);
#pragma unroll
        for (int v = 0; v < kWidth; ++v) sums[v] += values[v];
      }
    }
  }

  // Add up the rows of a column, in order, by its first thread.
  LADDER_SHARED(float, partial, [kWidth][kColumnThreads]);
#pragma unroll
  for (int v = 0; v < kWidth; ++v) partial[v][thread] = sums[v];
  __syncthreads();
  if (row != 0 || column >= all) return false;
  for (int other = 1; other < rows; ++other) {
#pragma unroll
    for (int v = 0; v < kWidth; ++v) sums[v] += partial[v][other * split.columns + thread];
  }
  return true;
}

}  // namespace ladder::add

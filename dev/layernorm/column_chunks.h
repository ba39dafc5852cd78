// Long rows cut into chunks of columns: a block has a chunk, keeps its parameters in registers, and goes down some of the
// rows.
#pragma once

#include <algorithm>

#include "core/device.h"
#include "dev/common/wide.h"
#include "dev/layernorm/layernorm.h"

namespace ladder::layernorm {

// Vectors of a row that a thread has: eight elements, whose parameters take as many registers each.
template <int kWidth>
inline constexpr int kChunkVectors = kWidth == 4   ? 2
                                     : kWidth == 1 ? 4
                                                   : 1;

inline constexpr int kRowsAtOnce = 4;  // of which a block has loads in flight

struct ColumnChunks {
  int chunks;          // of a row
  int groups;          // of rows
  int rows_per_group;  // the last group may have fewer

  unsigned blocks() const { return static_cast<unsigned>(chunks) * groups; }
};

// A group has at most `max_rows` rows, and fewer where the chunks alone are no more blocks than a card keeps busy.
template <int kWidth>
ColumnChunks column_chunks(const Problem& p, int threads, int max_rows) {
  constexpr int kBlocks = 2048;
  const int chunks = ceil_div(p.vectors(), threads * kChunkVectors<kWidth>);
  const int groups = std::max(ceil_div(p.m, max_rows), std::min(ceil_div(kBlocks, chunks), ceil_div(p.m, kRowsAtOnce)));
  const int rows_per_group = ceil_div(p.m, groups);
  return {.chunks = chunks, .groups = ceil_div(p.m, rows_per_group), .rows_per_group = rows_per_group};
}

// A thread's vectors of a row, which nobody reads again: the L2 evicts them first.
template <int kWidth, class T>
__device__ __forceinline__ void load_last(const T* tensor, int row, int n, int first, int valid,
                                          Bits<T, kWidth> (&loaded)[kChunkVectors<kWidth>]) {
  const auto* const from =
      reinterpret_cast<const Bits<T, kWidth>*>(tensor + static_cast<std::int64_t>(row) * n) + first;
#pragma unroll
  for (int v = 0; v < kChunkVectors<kWidth>; ++v) {
    if (v < valid) loaded[v] = __ldcs(from + v * blockDim.x);
  }
}

// Stores a vector that nobody reads soon.
template <int kWidth, class T>
__device__ __forceinline__ void store_last(T* tensor, int row, int n, int index, const Bits<T, kWidth>& bits) {
  __stcs(reinterpret_cast<Bits<T, kWidth>*>(tensor + static_cast<std::int64_t>(row) * n) + index, bits);
}

}  // namespace ladder::layernorm

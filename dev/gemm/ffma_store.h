// The fp32 register tile of gemm: splits its reduction, and stores its sums through the epilogue.
#pragma once

#include "dev/common/ffma_operand.h"
#include "dev/common/ffma_tile.h"
#include "dev/common/split_plan.h"
#include "dev/gemm/partial_sums.h"
#include "dev/gemm/product.h"

namespace ladder::gemm {

// Blocks an SM that leave a thread registers for its sums and the next chunk; single elements take more addresses.
template <class Tile, bool kVectors>
inline constexpr int kMinBlocks = !kVectors               ? 1
                                  : Tile::kThreads == 256 ? 2
                                                          : 3;

template <class Tile>
SplitPlan plan_ffma(const Product& c) {
  constexpr int kBlocksPerSm = 512 / Tile::kThreads;
  constexpr int kBusyBlocks = 256 / Tile::kThreads;  // two warps for each of an SM's four schedulers
  // An SM multiplies 128 pairs a clock, of which the loop reaches three quarters.
  constexpr double kUnitNs = Tile::kBlockM * Tile::kBlockN * kChunk / (128 * 1.7 * 0.75);
  return plan_split(double(c.rows) * c.columns, ceil_div(c.terms, kChunk), num_tiles<Tile>(c),
                    {.unit_ns = kUnitNs,
                     .finish_ns = 0,
                     .start_ns = 2000,
                     .blocks_per_sm = kBlocksPerSm,
                     .busy_blocks = kBusyBlocks});
}

// Stores a block's sums to `out` [rows, cols], a float* or a ConcatOperand<float>; its tile starts at (row0, col0).
template <class Tile, class Out>
__device__ __forceinline__ void store_sums(const float (&sum)[Tile::kThreadM][Tile::kThreadN], int row0, int col0,
                                           int rows, int cols, const Epilogue<float>& epilogue, Out out) {
#pragma unroll
  for (int i = 0; i < Tile::kThreadM; ++i) {
    const int row = row0 + Tile::row(i);
    if (row >= rows) continue;
#pragma unroll
    for (int j = 0; j < Tile::kThreadN; j += 4) {
      const int col = col0 + Tile::col(j);
      const long long index = static_cast<long long>(row) * cols + col;
      float v[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) v[e] = col + e < cols ? epilogue(sum[i][j + e], col + e, index + e) : 0.0f;
      if (in_runs<4>(out, cols)) {
        if (col < cols) *reinterpret_cast<float4*>(element_at(out, row, col, cols)) = {v[0], v[1], v[2], v[3]};
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (col + e < cols) *element_at(out, row, col + e, cols) = v[e];
        }
      }
    }
  }
}

}  // namespace ladder::gemm

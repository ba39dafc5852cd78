// Estimated time of a product with a tile of the mma.sync versions, and the number of splits that minimises it.
#pragma once

#include "dev/common/mma_tile.h"
#include "dev/common/split_plan.h"
#include "dev/gemm/product.h"

namespace ladder::gemm {

// Estimates for an H200, to choose tiles and splits: a step's operands arrive at one SM's share of the L2 bandwidth,
// and are multiplied at the rate that mma.sync reaches.
template <class T, class Tile>
SplitPlan plan_mma(const Product& c) {
  constexpr double kBytesPerNs = 60;
  constexpr double kProductsPerNs = sizeof(T) == 4 ? 900 : 1800;
  constexpr double kLoadNs = (Tile::kBlockM + Tile::kBlockN) * kStepBytes / kBytesPerNs;
  constexpr double kMultiplyNs = double(Tile::kBlockM) * Tile::kBlockN * kStepTerms<T> / kProductsPerNs;
  constexpr double kStoreNs = Tile::kBlockM * Tile::kBlockN * sizeof(T) / 30.0;
  return plan_split(double(c.rows) * c.columns, ceil_div(c.terms, kStepTerms<T>), num_tiles<Tile>(c),
                    {.unit_ns = std::max(kLoadNs, kMultiplyNs),
                     .finish_ns = kStoreNs,
                     .start_ns = 1500,
                     .blocks_per_sm = Tile::kBlocksPerSm});
}

}  // namespace ladder::gemm

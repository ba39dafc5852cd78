// Tiles of the versions for large matrices: a tile of y whose rows two consumer warpgroups divide, the barriers of its
// ring of stages, and the order in which persistent blocks take the tiles.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/backend.h"
#include "dev/common/persistent_tile.h"
#include "dev/gemm/product.h"

namespace ladder::gemm {

// Tile of a block, kBlockM x kBlockN sums. kStageBytes: both operands of one step. kStoreBytes: staging of the stores.
template <int kBlockM_, int kBlockN_, int kStageBytes_, int kStoreBytes_ = 0>
struct CooperativeTile {
  static constexpr int kBlockM = kBlockM_, kBlockN = kBlockN_, kStageBytes = kStageBytes_, kStoreBytes = kStoreBytes_;
  static constexpr int kGroupRows = kBlockM / kConsumerGroups;
  static constexpr int kMaxStages = 8;
  static constexpr int kBarrierBytes = 2 * kMaxStages * static_cast<int>(sizeof(ptx::Mbarrier));
  static constexpr int kStages = std::min(kMaxStages, (227 * 1024 - kBarrierBytes - kStoreBytes) / kStageBytes);
  static constexpr std::size_t kSmemBytes = std::size_t{kStages} * kStageBytes + kStoreBytes + kBarrierBytes;
  static_assert(kGroupRows == 64, "the rows of one wgmma");
  static_assert(kStageBytes % 1024 == 0, "whole swizzle patterns");
  static_assert(kStages >= 2, "a step is loaded while the one before multiplies");
};

// Barriers of the ring. A stage is full when its bytes have arrived, and empty when every consumer warp of all blocks
// that fill it has arrived.
template <class Tile>
struct StageBarriers {
  ptx::Mbarrier* full;
  ptx::Mbarrier* empty;

  // `smem` is the block's shared memory: stages, staging, barriers. `blocks` blocks fill it. All threads call.
  explicit __device__ __forceinline__ StageBarriers(unsigned char* smem, int blocks = 1)
      : full(reinterpret_cast<ptx::Mbarrier*>(smem + Tile::kStages * Tile::kStageBytes + Tile::kStoreBytes)),
        empty(full + Tile::kStages) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < Tile::kStages; ++i) {
        ptx::mbarrier_init(full + i, 1);
        ptx::mbarrier_init(empty + i, blocks * kConsumerThreads / 32);
      }
      ptx::mbarrier_fence_init();
    }
    __syncthreads();
  }
};

// Order of the tiles: bands of eight rows of tiles, each band column by column. Tiles that run at the same time then
// share few rows of both operands, which stay in L2.
template <class Tile>
struct TileOrder {
  static constexpr int kBandRows = 8;
  int tiles_m, tiles_n;

  explicit __device__ __forceinline__ TileOrder(const Product& c)
      : tiles_m(ceil_div(c.rows, Tile::kBlockM)), tiles_n(ceil_div(c.columns, Tile::kBlockN)) {}

  __device__ __forceinline__ int count() const { return tiles_m * tiles_n; }

  // The first row and column of a tile.
  __device__ __forceinline__ int2 offset_of(int tile) const {
    const int band = tile / (kBandRows * tiles_n);
    const int in_band = tile % (kBandRows * tiles_n);
    const int rows = min(kBandRows, tiles_m - band * kBandRows);
    return {(band * kBandRows + in_band % rows) * Tile::kBlockM, in_band / rows * Tile::kBlockN};
  }
};

}  // namespace ladder::gemm

// The kernel of fprop and dgrad v06, whatever the major of B: persistent blocks, one an SM, whose producer thread fills a ring
// of stages by TMA ahead of two consumer warpgroups, which take tiles by turns.
//
// Shared memory, S = Tile::kStages:
//
//     S x kStageBytes   ring: stage = A [kBlockM][128 bytes], then B's 64 terms x kBlockN; swizzled by 128 bytes
//     kStoreBytes       staging [8 warps][kBlockM / 64 parts]: the residual on its way in, sums on their way out
//     S x 8 bytes       full[stage]: 1 arrival and kStageBytes by TMA
//     S x 8 bytes       empty[stage]: 4 arrivals, a warp each of the group whose tile it was
//     2 x 8 bytes       turns[group]: 4 arrivals, a warp each of the other group
//
// Phases over a block's tiles t0, t1, ...:
//
//     producer   load t0 | load t1 | load t2 | ...                ahead by up to S steps
//     group 0            | multiply t0 | store t0    | multiply t2 | store t2 ...
//     group 1                          | multiply t1 | store t1    | multiply t3 ...
#pragma once

#include "dev/common/persistent_tile.h"
#include "dev/gemm/product.h"
#include "dev/gemm/warp_store.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/setmaxnreg.h"
#include "dev/ptx/tma.h"
#include "dev/ptx/wgmma.h"

namespace ladder::gemm {

// A's maps load a box of its terms and rows. B loads its step of kBlockN columns into a stage, and multiplies a stage's A and
// B. kBias: there may be one. early_b: B may be loaded before the grid in front has ended.
template <class Tile, class B, bool kBias, class A, class T, class P, class Out>
__device__ __forceinline__ void wgmma_persistent(const Product& c, const A& a_maps, const ptx::TensorMap& b_map,
                                                 bool early_b, const Epilogue<T, P>& epilogue, const Out& out) {
  using Store = WarpStore<T, Tile::kBlockN>;
  constexpr int kParts = Tile::kBlockM / 64;
  constexpr int kBytesA = Tile::kBlockM * kStepRowBytes;
  LADDER_DYN_SMEM(smem);  // [stage]: kBlockM rows of A, 128 bytes each, then B
  unsigned char* const stores = smem + Tile::kStages * Tile::kStageBytes;
  auto* const full = reinterpret_cast<ptx::Mbarrier*>(stores + Tile::kStoreBytes);
  ptx::Mbarrier* const empty = full + Tile::kStages;
  const PingPongOrder turns{empty + Tile::kStages};

  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::kStages; ++i) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, kGroupThreads / 32);
    }
    turns.init();
    ptx::mbarrier_fence_init();
  }
  if (threadIdx.x == kConsumerThreads) {
    a_maps.prefetch();
    ptx::tma_prefetch(b_map);
  }
  __syncthreads();

  // Columns fastest: blocks that share rows of A run together.
  const int tiles_n = ceil_div(c.columns, Tile::kBlockN);
  const int tiles = ceil_div(c.rows, Tile::kBlockM) * tiles_n;
  const int steps = ceil_div(c.terms, kStepTerms16);

  if (threadIdx.x >= kConsumerThreads) {
    // The producer, one thread. A fresh barrier lets a wait for the parity before its first phase pass: parity ^ 1.
    ptx::warpgroup_reg_dealloc<kProducerRegisters>();
    if (threadIdx.x != kConsumerThreads) return;
    const auto load_b = [&](int stage, int col0, int step) {
      ptx::mbarrier_arrive_expect_tx(full + stage, Tile::kStageBytes);
      B::load(smem + stage * Tile::kStageBytes + kBytesA, b_map, full + stage, col0, step * kStepTerms16);
    };
    const int early_steps = early_b ? min(steps, Tile::kStages) : 0;
    for (int step = 0; step < early_steps; ++step) {
      load_b(step, static_cast<int>(blockIdx.x) % tiles_n * Tile::kBlockN, step);
    }
    int i = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const int row0 = tile / tiles_n * Tile::kBlockM;
      const int col0 = tile % tiles_n * Tile::kBlockN;
      ptx::grid_dependency_wait_after(row0 | col0);
      for (int step = 0; step < steps; ++step, ++i) {
        const int stage = stage_of<Tile::kStages>(i);
        ptx::mbarrier_wait(empty + stage, parity_of<Tile::kStages>(i) ^ 1);
        if (i >= early_steps) load_b(stage, col0, step);
        a_maps.load(smem + stage * Tile::kStageBytes, full + stage, step * kStepTerms16, row0);
      }
    }
    ptx::grid_dependency_launch();
    return;
  }

  ptx::warpgroup_reg_alloc<kConsumerRegisters>();
  const int group = threadIdx.x / kGroupThreads;
  const int warp = threadIdx.x / 32;
  const bool elected = threadIdx.x % 32 == 0;
  unsigned char* const staging = stores + warp * kParts * Store::kBytes;
  int turn = group;
  ptx::grid_dependency_wait();
  for (int tile = blockIdx.x + group * gridDim.x; tile < tiles; tile += kConsumerGroups * gridDim.x) {
    const int row0 = tile / tiles_n * Tile::kBlockM + warp % 4 * 16;
    const int col0 = tile % tiles_n * Tile::kBlockN;
    if (epilogue.residual) {
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        Store::fetch(staging + part * Store::kBytes, epilogue.residual, row0 + part * 64, col0, c.rows, c.columns);
    }
    ptx::cp_async_commit();
    float2 bias[Store::kPairs];
    if constexpr (kBias) Store::fetch_bias(bias, epilogue.bias, col0, c.columns);

    float acc[kParts][Tile::kBlockN / 2];
    turns.wait(turn);
    for (int step = 0; step < steps; ++step) {
      const int stage = stage_of<Tile::kStages>(turn * steps + step);
      const unsigned char* const a = smem + stage * Tile::kStageBytes;
      ptx::mbarrier_wait(full + stage, parity_of<Tile::kStages>(turn * steps + step));
      ptx::wgmma_fence();
#pragma unroll
      for (int kk = 0; kk < kStepTerms16 / kWgmmaTerms; ++kk) {
        const auto b_operand = B::descriptor(a + kBytesA, kk * kWgmmaTerms);
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          const auto a_operand =
              ptx::wgmma_descriptor(a + part * 64 * kStepRowBytes + kk * kWgmmaTerms * 2, 8 * kStepRowBytes);
          B::template multiply<T>(acc[part], a_operand, b_operand, step > 0 || kk > 0);
        }
      }
      ptx::wgmma_commit();
      if (elected && step == steps - 1) turns.pass_on(turn);
      // The stage that the multiplications before these have read is free.
      ptx::wgmma_wait<1>();
      if (elected && step > 0) ptx::mbarrier_arrive(empty + stage_of<Tile::kStages>(turn * steps + step - 1));
    }
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int part = 0; part < kParts; ++part) ptx::warpgroup_fence_operand(acc[part]);
    if (elected) ptx::mbarrier_arrive(empty + stage_of<Tile::kStages>(turn * steps + steps - 1));

    // Each warp stores its own rows, while the other group multiplies.
    ptx::cp_async_wait<0>();
    __syncwarp();
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      Store::store(staging + part * Store::kBytes, acc[part], kBias ? bias : nullptr, row0 + part * 64, col0, c.rows,
                   c.columns, epilogue, out);
    turn += kConsumerGroups;
  }
}

}  // namespace ladder::gemm

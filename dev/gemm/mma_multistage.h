// The kernel of fprop and dgrad v05, whatever the major of B: a block multiplies kBlockM rows of A by kBlockN columns of B on
// mma.sync, over its split's terms, with kStages - 1 steps of cp.async in flight.
#pragma once

#include "dev/gemm/mma_plan.h"
#include "dev/gemm/partial_sums.h"
#include "dev/gemm/product.h"
#include "dev/gemm/store_tile.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::gemm {

// A stage holds a step of A and then one of B; both copy themselves to shared memory and load their own fragments.
template <class A_, class B_>
struct StageOf {
  using A = A_;
  using B = B_;
  static constexpr int kBytes = A::kBytes + B::kBytes;
};

// NOTE: parameters come by value, as a kernel's do: by reference they change the order of the machine code.
template <class Tile, class Stage, bool kVectors, class T, class P, class Out>
__device__ __forceinline__ void mma_multistage(Product c, Split split, const T* a, const T* b, Epilogue<T, P> epilogue,
                                               Out out, float* partial) {
  using A = typename Stage::A;
  using B = typename Stage::B;
  constexpr int kStages = Tile::kStages, kThreads = Tile::kThreads;
  LADDER_DYN_SMEM(smem);  // [stage]: A, then B

  // Columns fastest: blocks that share rows of A run together.
  const int blocks_n = ceil_div(c.columns, Tile::kBlockN);
  const int blocks_m = ceil_div(c.rows, Tile::kBlockM);
  const int col0 = blockIdx.x % blocks_n * Tile::kBlockN;
  const int row0 = blockIdx.x / blocks_n % blocks_m * Tile::kBlockM;
  const int split_idx = blockIdx.x / blocks_n / blocks_m;
  const int first = split_idx * split.units_per_split * kStepTerms<T>;
  const int end = min(c.terms, first + split.units_per_split * kStepTerms<T>);
  const int num_steps = ceil_div(end - first, kStepTerms<T>);

  auto fetch = [&](int step) {
    if (step < num_steps) {
      unsigned char* const as = smem + step % kStages * Stage::kBytes;
      const int term = first + step * kStepTerms<T>;
      A::template fetch<kThreads, kVectors>(as, a, c.terms, row0, c.rows, term, end);
      B::template fetch<kThreads, kVectors>(as + A::kBytes, b, c.terms, col0, c.columns, term, end);
    }
    ptx::cp_async_commit();  // one group a step, empty or not, so that the count of pending groups tells the step
  };

  float acc[Tile::kWarpM / 16][Tile::kWarpN / 8][4] = {};
  ptx::grid_dependency_wait();
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) fetch(step);
  for (int step = 0; step < num_steps; ++step) {
    ptx::cp_async_wait<kStages - 2>();
    // One barrier a step: this step's copies are visible to all, and all have left the stage that is filled next.
    __syncthreads();
    fetch(step + kStages - 1);
    const unsigned char* const as = smem + step % kStages * Stage::kBytes;
    multiply_step<T, Tile, A, B>(acc, as, as + A::kBytes);
  }

  ptx::grid_dependency_launch();
  // Accumulators go to the output through shared memory, so that a warp writes whole rows, 16 bytes a lane.
  ptx::cp_async_wait<0>();
  __syncthreads();
  float* const tile = reinterpret_cast<float*>(smem);
  put_sums<Tile>(acc, tile);
  __syncthreads();
  if (split.splits == 1) {
    store_tile<kThreads, Tile::kBlockM, Tile::kBlockN, Tile::kSlices>(tile, Tile::kPitch, Tile::kSlice, row0, col0,
                                                                      c.rows, c.columns, epilogue, out);
  } else {
    store_tile<kThreads, Tile::kBlockM, Tile::kBlockN, Tile::kSlices>(tile, Tile::kPitch, Tile::kSlice, row0, col0,
                                                                      c.rows, c.columns, Epilogue<float>{},
                                                                      partial + split_idx * padded(c.count()));
  }
}

}  // namespace ladder::gemm

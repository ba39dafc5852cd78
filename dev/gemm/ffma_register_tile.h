// The kernel of fprop and dgrad v03, whatever the major of B: a thread's sums stay in registers, and the next chunk of both
// operands travels through registers while this one multiplies out of shared memory.
#pragma once

#include "dev/gemm/ffma_store.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::gemm {

// A and B fetch kChunk terms of a block's rows and columns into registers, and put them into shared memory.
template <class Tile, class A, class B, class Out>
__device__ __forceinline__ void ffma_register_tile(Product c, Split split, const float* a_matrix, const float* b_matrix,
                                                   Epilogue<float> epilogue, Out out, float* partial) {
  constexpr int kStage = kChunk * (Tile::kPitchM + Tile::kPitchN);
  LADDER_SHARED(float4, smem, [2 * kStage / 4]);  // twice: A [term][row], then B [term][column]
  float* const stages = reinterpret_cast<float*>(smem);

  const int blocks_n = ceil_div(c.columns, Tile::kBlockN);
  const int blocks_m = ceil_div(c.rows, Tile::kBlockM);
  const int col0 = blockIdx.x % blocks_n * Tile::kBlockN;
  const int row0 = blockIdx.x / blocks_n % blocks_m * Tile::kBlockM;
  const int split_idx = blockIdx.x / blocks_n / blocks_m;
  const int first = split_idx * split.units_per_split * kChunk;
  const int end = min(c.terms, first + split.units_per_split * kChunk);

  ptx::grid_dependency_wait();
  A a(a_matrix, row0, c.rows, c.terms);
  B b(b_matrix, col0, c.columns, c.terms);
  float acc[Tile::kThreadM][Tile::kThreadN] = {};
  a.fetch(first, end);
  b.fetch(first, end);
  for (int term = first, stage = 0; term < end; term += kChunk, stage ^= 1) {
    // One barrier a chunk: a stage is written again two chunks later, when all threads have left it.
    float* const as = stages + stage * kStage;
    float* const bs = as + kChunk * Tile::kPitchM;
    a.put(as);
    b.put(bs);
    __syncthreads();
    if (term + kChunk < end) {
      a.fetch(term + kChunk, end);
      b.fetch(term + kChunk, end);
    }
    Tile::template multiply<kChunk>(acc, as, bs);
  }

  ptx::grid_dependency_launch();
  if (split.splits == 1) {
    store_sums<Tile>(acc, row0, col0, c.rows, c.columns, epilogue, out);
  } else {
    store_sums<Tile>(acc, row0, col0, c.rows, c.columns, {}, partial + split_idx * padded(c.count()));
  }
}

}  // namespace ladder::gemm

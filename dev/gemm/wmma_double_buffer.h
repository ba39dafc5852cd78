// The kernel of fprop and dgrad v04, whatever the major of B: WMMA on chunks of A and B that cp.async copies to shared memory,
// one chunk ahead.
#pragma once

#include <algorithm>

#include "dev/common/mma_operand.h"
#include "dev/gemm/product.h"
#include "dev/gemm/store_tile.h"

namespace ladder::gemm {

// Copies a box of kWidth columns from (row0, col0) of a matrix [rows, columns] to rows of `pitch` elements; zeros beyond it.
template <int kThreads, int kHeight, int kWidth, bool kVectors, class T>
__device__ __forceinline__ void fetch_box(T* to, int pitch, const T* matrix, int row0, int rows, int col0,
                                          int columns) {
  constexpr int kRunsPerRow = kWidth / kRun<T>;
  const int col = threadIdx.x % kRunsPerRow * kRun<T>;
  for (int row = threadIdx.x / kRunsPerRow; row < kHeight; row += kThreads / kRunsPerRow) {
    copy_run<kVectors>(reinterpret_cast<unsigned char*>(to + row * pitch + col),
                       matrix + static_cast<long long>(row0 + row) * columns + col0 + col, matrix,
                       row0 + row < rows ? columns - col0 - col : 0);
  }
}

// Tile: kBlockM x kBlockN sums by kThreads threads, kWarpsM warps down. LayoutB: wmma::col_major or wmma::row_major.
template <class T, class Tile, class LayoutB>
struct WmmaChunk {
  static constexpr bool kColMajorB = std::is_same_v<LayoutB, nvcuda::wmma::col_major>;
  static constexpr int kTerms = 64 / sizeof(T);
  static constexpr int kPitchA = kTerms + kRun<T>;  // 16 bytes of padding: eight rows start in different banks
  static constexpr int kPitchB = (kColMajorB ? kTerms : Tile::kBlockN) + kRun<T>;
  static constexpr int kSizeA = Tile::kBlockM * kPitchA;
  static constexpr int kStage = kSizeA + (kColMajorB ? Tile::kBlockN : kTerms) * kPitchB;
  static constexpr int kPitchC = Tile::kBlockN + 4;
  static constexpr std::size_t kSmemBytes =
      std::max<std::size_t>(2 * kStage * sizeof(T), Tile::kBlockM* kPitchC * sizeof(float));
};

// NOTE: parameters come by value, as a kernel's do: by reference they change registers and the order of the machine code.
template <class Tile, class LayoutB, bool kVectors, class T, class Out>
__device__ __forceinline__ void wmma_double_buffer(Product c, const T* a_matrix, const T* b_matrix,
                                                   Epilogue<T> epilogue, Out out) {
  namespace wmma = nvcuda::wmma;
  using Chunk = WmmaChunk<T, Tile, LayoutB>;
  using Operand = std::conditional_t<sizeof(T) == 4, wmma::precision::tf32, T>;
  constexpr int kFragmentK = sizeof(T) == 4 ? 8 : 16;
  constexpr int kThreads = Tile::kThreads, kBlockM = Tile::kBlockM, kBlockN = Tile::kBlockN;
  constexpr int kWarpM = kBlockM / Tile::kWarpsM;
  constexpr int kWarpN = kBlockN / (kThreads / 32 / Tile::kWarpsM);
  LADDER_DYN_SMEM(smem);
  T* const stages = reinterpret_cast<T*>(smem);  // [stage]: A [row][term], then B [column][term] or [term][column]

  const int blocks_n = ceil_div(c.columns, kBlockN);
  const int col0 = blockIdx.x % blocks_n * kBlockN;
  const int row0 = blockIdx.x / blocks_n * kBlockM;
  const int warp = threadIdx.x / 32;
  const int warp_m = warp % Tile::kWarpsM * kWarpM;
  const int warp_n = warp / Tile::kWarpsM * kWarpN;

  constexpr int kRunsPerRow = Chunk::kTerms / kRun<T>;
  constexpr int kRowStep = kThreads / kRunsPerRow;
  auto fetch = [&](int chunk) {
    T* const as = stages + chunk % 2 * Chunk::kStage;
    T* const bs = as + Chunk::kSizeA;
    const int load_term = threadIdx.x % kRunsPerRow * kRun<T>;
    const int term = chunk * Chunk::kTerms + load_term;
    for (int row = threadIdx.x / kRunsPerRow; row < kBlockM; row += kRowStep) {
      copy_run<kVectors>(reinterpret_cast<unsigned char*>(as + row * Chunk::kPitchA + load_term),
                         a_matrix + static_cast<long long>(row0 + row) * c.terms + term, a_matrix,
                         row0 + row < c.rows ? c.terms - term : 0);
    }
    if constexpr (Chunk::kColMajorB) {
      for (int row = threadIdx.x / kRunsPerRow; row < kBlockN; row += kRowStep) {
        copy_run<kVectors>(reinterpret_cast<unsigned char*>(bs + row * Chunk::kPitchB + load_term),
                           b_matrix + static_cast<long long>(col0 + row) * c.terms + term, b_matrix,
                           col0 + row < c.columns ? c.terms - term : 0);
      }
    } else {
      constexpr int kRunsPerTerm = kBlockN / kRun<T>;
      constexpr int kTermStep = kThreads / kRunsPerTerm;
      const int load_col = threadIdx.x % kRunsPerTerm * kRun<T>;
      for (int row = threadIdx.x / kRunsPerTerm; row < Chunk::kTerms; row += kTermStep) {
        const int b_row = chunk * Chunk::kTerms + row;
        copy_run<kVectors>(reinterpret_cast<unsigned char*>(bs + row * Chunk::kPitchB + load_col),
                           b_matrix + static_cast<long long>(b_row) * c.columns + col0 + load_col, b_matrix,
                           b_row < c.terms ? c.columns - col0 - load_col : 0);
      }
    }
    ptx::cp_async_commit();
  };

  wmma::fragment<wmma::accumulator, 16, 16, kFragmentK, float> acc[kWarpM / 16][kWarpN / 16];
#pragma unroll
  for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
    for (int j = 0; j < kWarpN / 16; ++j) wmma::fill_fragment(acc[i][j], 0.0f);
  }

  const int num_chunks = ceil_div(c.terms, Chunk::kTerms);
  fetch(0);
  for (int t = 0; t < num_chunks; ++t) {
    // Fetch ahead into the buffer that the barrier at the end of the last chunk set free.
    if (t + 1 < num_chunks) {
      fetch(t + 1);
      ptx::cp_async_wait<1>();
    } else {
      ptx::cp_async_wait<0>();
    }
    __syncthreads();

    const T* const as = stages + t % 2 * Chunk::kStage;
    const T* const bs = as + Chunk::kSizeA;
#pragma unroll
    for (int kk = 0; kk < Chunk::kTerms; kk += kFragmentK) {
      wmma::fragment<wmma::matrix_a, 16, 16, kFragmentK, Operand, wmma::row_major> a[kWarpM / 16];
#pragma unroll
      for (int i = 0; i < kWarpM / 16; ++i) {
        wmma::load_matrix_sync(a[i], as + (warp_m + 16 * i) * Chunk::kPitchA + kk, Chunk::kPitchA);
      }
#pragma unroll
      for (int j = 0; j < kWarpN / 16; ++j) {
        wmma::fragment<wmma::matrix_b, 16, 16, kFragmentK, Operand, LayoutB> b;
        const T* const from = Chunk::kColMajorB ? bs + (warp_n + 16 * j) * Chunk::kPitchB + kk
                                                : bs + kk * Chunk::kPitchB + warp_n + 16 * j;
        wmma::load_matrix_sync(b, from, Chunk::kPitchB);
#pragma unroll
        for (int i = 0; i < kWarpM / 16; ++i) wmma::mma_sync(acc[i][j], a[i], b, acc[i][j]);
      }
    }
    __syncthreads();
  }

  float* const tile = reinterpret_cast<float*>(smem);
#pragma unroll
  for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
    for (int j = 0; j < kWarpN / 16; ++j) {
      wmma::store_matrix_sync(tile + (warp_m + 16 * i) * Chunk::kPitchC + warp_n + 16 * j, acc[i][j], Chunk::kPitchC,
                              wmma::mem_row_major);
    }
  }
  __syncthreads();
  store_tile<kThreads, kBlockM, kBlockN>(tile, Chunk::kPitchC, 0, row0, col0, c.rows, c.columns, epilogue, out);
}

}  // namespace ladder::gemm

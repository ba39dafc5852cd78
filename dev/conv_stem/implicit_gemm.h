// conv_stem as a matrix product in FP16, shared by the WMMA versions.
//
//     Y[m][k] = sum over terms of  A[m][term] * W[k][term]
//
// m counts pixels of y in NHWC order, so that row m of Y is row m of y; a term is (i, j, c), so that W is w as it lies in
// memory; A is x, gathered. A block has 128 pixels x 96 channels, a chunk of the sums 32 terms.
#pragma once

#include "core/device.h"
#include "dev/conv_stem/conv_stem.h"

namespace ladder::conv_stem {

constexpr int kGemmThreads = 256;
constexpr int kBlockM = 128;
constexpr int kBlockN = 96;
constexpr int kChunk = 32;
constexpr int kChunkPitch = kChunk + 8;  // halves: a fragment's rows begin in different banks
constexpr int kChunkHalves = (kBlockM + kBlockN) * kChunkPitch;
// Eight warps as 4 x 2, each with 2 x 3 fragments.
constexpr int kWarpsM = 4;
constexpr int kFragmentsM = 2;
constexpr int kFragmentsN = 3;
static_assert(kWarpsM * kFragmentsM * 16 == kBlockM && 2 * kFragmentsN * 16 == kBlockN, "fragments cover the tile");

// Window in x of a pixel of y: element offset, row and column of the upper left corner, which may lie in the padding.
struct Window {
  int base;
  int row;
  int col;
};

constexpr int kNowhere = 1 << 24;  // a row that no image has

__device__ __forceinline__ Window window_of(const Problem& p, int m) {
  const int row = m / p.out_w() % p.out_h() * p.stride - p.pad;
  const int col = m % p.out_w() * p.stride - p.pad;
  const int image = m / p.out_w() / p.out_h();
  return {((image * p.h + row) * p.w + col) * p.c, image < p.n ? row : kNowhere, col};
}

// Position of a term in a window: its row i and column j, and its element offset from the window's base.
struct Term {
  int offset;
  int i;
  int j;
};

__device__ __forceinline__ Term term_of(const Problem& p, int term) {
  const int i = term / (p.r * p.c);
  const int j = term / p.c % p.r;
  return {(i * p.w + j) * p.c + term % p.c, i < p.r ? i : kNowhere, j};
}

// Returns an element of A: zero outside the image and past the last term.
__device__ __forceinline__ float gather(const Problem& p, const float* x, const Window& window, const Term& term) {
  const int row = window.row + term.i;
  const int col = window.col + term.j;
  const bool inside = row >= 0 && row < p.h && col >= 0 && col < p.w;
  return inside ? x[window.base + term.offset] : 0.0f;
}

__device__ __forceinline__ float weight(const Problem& p, const float* w, int k, int term) {
  return k < p.k && term < p.filter() ? w[k * p.filter() + term] : 0.0f;
}

using Accumulator = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;
using FragmentA = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __half, nvcuda::wmma::row_major>;
using FragmentB = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __half, nvcuda::wmma::col_major>;

// A warp's first row and column of the tile.
__device__ __forceinline__ int warp_m() { return static_cast<int>(threadIdx.x) / 32 % kWarpsM * kFragmentsM * 16; }
__device__ __forceinline__ int warp_n() { return static_cast<int>(threadIdx.x) / 32 / kWarpsM * kFragmentsN * 16; }

__device__ __forceinline__ void clear(Accumulator (&sum)[kFragmentsM][kFragmentsN]) {
#pragma unroll
  for (int m = 0; m < kFragmentsM; ++m) {
#pragma unroll
    for (int n = 0; n < kFragmentsN; ++n) nvcuda::wmma::fill_fragment(sum[m][n], 0.0f);
  }
}

// Adds a chunk's products: `a` is [kBlockM][kChunkPitch], and B [kBlockN][kChunkPitch] follows it.
__device__ __forceinline__ void multiply_chunk(Accumulator (&sum)[kFragmentsM][kFragmentsN], const __half* a) {
  namespace wmma = nvcuda::wmma;
  const __half* const b = a + kBlockM * kChunkPitch;
#pragma unroll
  for (int term = 0; term < kChunk; term += 16) {
    FragmentA rows[kFragmentsM];
#pragma unroll
    for (int m = 0; m < kFragmentsM; ++m) {
      wmma::load_matrix_sync(rows[m], a + (warp_m() + 16 * m) * kChunkPitch + term, kChunkPitch);
    }
#pragma unroll
    for (int n = 0; n < kFragmentsN; ++n) {
      FragmentB columns;
      wmma::load_matrix_sync(columns, b + (warp_n() + 16 * n) * kChunkPitch + term, kChunkPitch);
#pragma unroll
      for (int m = 0; m < kFragmentsM; ++m) wmma::mma_sync(sum[m][n], rows[m], columns, sum[m][n]);
    }
  }
}

// Stores a warp's sums one fragment after the other, by way of 16 x 16 floats of its own in shared memory.
constexpr int kPatchPitch = 20;  // floats
constexpr int kPatchFloats = 16 * kPatchPitch;

__device__ __forceinline__ void store_fragments(const Problem& p, const Accumulator (&sum)[kFragmentsM][kFragmentsN],
                                                float* patch, int m0, int k0, const float* bias, float* y) {
#pragma unroll
  for (int m = 0; m < kFragmentsM; ++m) {
#pragma unroll
    for (int n = 0; n < kFragmentsN; ++n) {
      nvcuda::wmma::store_matrix_sync(patch, sum[m][n], kPatchPitch, nvcuda::wmma::mem_row_major);
      __syncwarp();
      for (int e = threadIdx.x % 32; e < 256; e += 32) {
        const int pixel = m0 + warp_m() + 16 * m + e / 16;
        const int k = k0 + warp_n() + 16 * n + e % 16;
        if (pixel < p.n * p.out_h() * p.out_w() && k < p.k) {
          y[static_cast<long long>(pixel) * p.k + k] = patch[e / 16 * kPatchPitch + e % 16] + (bias ? bias[k] : 0.0f);
        }
      }
      __syncwarp();
    }
  }
}

// Shared memory in bytes: the chunks, then a patch for each warp.
constexpr std::size_t gemm_smem_bytes(int chunks) {
  return chunks * kChunkHalves * sizeof(__half) + kGemmThreads / 32 * kPatchFloats * sizeof(float);
}

inline dim3 gemm_grid(const Problem& p) {
  return {static_cast<unsigned>(ceil_div(p.n * p.out_h() * p.out_w(), kBlockM)),
          static_cast<unsigned>(ceil_div(p.k, kBlockN))};
}

}  // namespace ladder::conv_stem

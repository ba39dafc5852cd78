// Tiles of tokens for mma.sync in tf32: fragments of rows in the layout of mma_tile.h, products and sums.
//
// The order of a product's terms is free, and so is the row or channel that each of its columns stands for, as long as
// both operands agree. The orders below let s leave its product as the A fragment of the next one, avoid bank
// conflicts, and load and store whole runs of four channels where that is possible. With g = lane / 4, t = lane % 4 and
// row_of_column(i) = i / 2 + i % 2 * 4:
//   s = a . rows^T    of sixteen channels, terms t and t + 4 are 4t and 4t + 1, in the next MMA 4t + 2 and 4t + 3;
//                     column i of eight is row row_of_column(i): a lane's sums belong to rows t and t + 4
//   sum = p . rows    terms are rows; of 32 channels, column i of MMA j of four is 4j + i % 4, from i = 4 on 16 more
#pragma once

#include "dev/attention/mma_rows.h"
#include "dev/attention/mma_tile.h"

namespace ladder::attention {

__device__ __forceinline__ int row_of_column(int i) { return i / 2 + i % 2 * 4; }

// Load the A fragments of sixteen rows straight from global memory. `row` is the lane's first row, row g of the
// fragment. Rows from `end` on are zeros.
template <int kD>
__device__ __forceinline__ void load_tf32_rows(std::uint32_t (&a)[kD / 8][4], const float* rows, int pitch, int row,
                                               int end) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float* const from = rows + (row + 8 * half) * pitch + threadIdx.x % 4 * 4;
#pragma unroll
    for (int k = 0; k < kD / 8; k += 2) {
      uint4 run = {0, 0, 0, 0};
      if (row + 8 * half < end) run = *reinterpret_cast<const uint4*>(from + 8 * k);
      a[k][half] = run.x, a[k][2 + half] = run.y;
      a[k + 1][half] = run.z, a[k + 1][2 + half] = run.w;
    }
  }
}

// Byte offsets in shared memory of a lane's first 16-byte run (add_scores) and of its first word (add_weighted) in the
// eight rows that begin at byte `rows`, a multiple of eight rows.
//
// NOTE: the run four further on is in the other half of 128 bytes, so that every address is an XOR and a constant away
// from these two offsets. Left to itself, the compiler keeps an address for each load in registers.
template <int kRowBytes>
__device__ __forceinline__ int score_runs(int rows) {
  return rows + swizzled<kRowBytes>(row_of_column(threadIdx.x % 32 / 4), threadIdx.x % 4);
}
template <int kRowBytes>
__device__ __forceinline__ int weighted_words(int rows) {
  return rows + swizzled<kRowBytes>(threadIdx.x % 4, threadIdx.x / 16 % 2 * 4) + threadIdx.x / 4 % 4 * 4;
}
constexpr int kOtherHalf = 64;

__device__ __forceinline__ uint4 run_at(const unsigned char* smem, int offset) {
  return *reinterpret_cast<const uint4*>(smem + offset);
}
__device__ __forceinline__ std::uint32_t word_at(const unsigned char* smem, int offset) {
  return *reinterpret_cast<const std::uint32_t*>(smem + offset);
}

// s += a . rows^T for eight rows by kD channels; `offset` is score_runs() of the rows.
template <int kD, int kTiles>
__device__ __forceinline__ void add_scores(float (&s)[kTiles][4], const std::uint32_t (&a)[kTiles][kD / 8][4],
                                           const unsigned char* smem, int offset) {
#pragma unroll
  for (int k = 0; k < kD / 8; k += 2) {
    const uint4 b = run_at(smem, (k % 4 == 0 ? offset : offset ^ kOtherHalf) + k / 4 * 2 * kOtherHalf);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) ptx::mma_m16n8k8_tf32(s[tile], a[tile][k], {b.x, b.y});
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) ptx::mma_m16n8k8_tf32(s[tile], a[tile][k + 1], {b.z, b.w});
  }
}

// sum += p . rows for eight rows by kD channels; `offset` is weighted_words() of the rows.
template <int kRowBytes, int kD, int kTiles>
__device__ __forceinline__ void add_weighted(float (&sum)[kTiles][kD / 8][4], const std::uint32_t (&p)[kTiles][4],
                                             const unsigned char* smem, int offset) {
#pragma unroll
  for (int j = 0; j < kD / 8; ++j) {
    const int run = (offset ^ j % 4 * kRunBytes) + j / 4 * 2 * kOtherHalf;
    const int other = (offset ^ (kOtherHalf + j % 4 * kRunBytes)) + j / 4 * 2 * kOtherHalf;
    const std::uint32_t b[2] = {word_at(smem, run), word_at(smem, other + 4 * kRowBytes)};
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) ptx::mma_m16n8k8_tf32(sum[tile][j], p[tile], b);
  }
}

// Round the sums of add_scores, or values derived from them, to the A fragment of add_weighted.
__device__ __forceinline__ void as_tf32_rows(std::uint32_t (&a)[4], const float (&s)[4]) {
  a[0] = ptx::to_tf32(s[0]), a[1] = ptx::to_tf32(s[2]);
  a[2] = ptx::to_tf32(s[1]), a[3] = ptx::to_tf32(s[3]);
}

// Store one row of add_weighted's sums, times `factor`, to global memory: row g, or row g + 8 if `half` is 1. A lane
// has two channels of each run and gets the other two, for every second run, from its neighbour. All lanes must call;
// `inside` says whether the row exists.
template <int kD>
__device__ __forceinline__ void store_tf32_row(float* to, const float (&sum)[kD / 8][4], int half, float factor,
                                               bool inside) {
  const int odd = threadIdx.x % 2;
#pragma unroll
  for (int j = 0; j < kD / 8; j += 2) {
    float kept[2];
    float received[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      kept[i] = factor * sum[j + 0][2 * half + i];
      const float other = factor * sum[j + 1][2 * half + i];
      received[i] = __shfl_xor_sync(0xffffffffu, odd ? kept[i] : other, 1);
      if (odd) kept[i] = other;
    }
    if (!inside) continue;
    *reinterpret_cast<float4*>(to + j / 4 * 32 + threadIdx.x % 4 / 2 * 16 + (j % 4 + odd) * 4) =
        odd ? float4{received[0], received[1], kept[0], kept[1]} : float4{kept[0], kept[1], received[0], received[1]};
  }
}

}  // namespace ladder::attention

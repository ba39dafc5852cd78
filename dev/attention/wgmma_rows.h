// Tiles of tokens for wgmma, in 16 bits: rows of one head's channels in shared memory, 64 or 128 bytes under the
// swizzle of that width; sums as the A operand of the next product, and as rows in global memory.
#pragma once

#include "core/numeric.h"
#include "dev/attention/attention.h"
#include "dev/attention/mma_rows.h"
#include "dev/common/vectors.h"
#include "dev/ptx/cp_async.h"
#include "dev/ptx/wgmma.h"

namespace ladder::attention {

constexpr int kGroupThreads = 128;  // of a warpgroup
constexpr int kGroupRows = 64;      // M of a wgmma
constexpr int kDepth = 16;          // K of a wgmma
constexpr int kTermBytes = 2 * kDepth;

// Byte offset of 16-byte run `run` of row `row` under the swizzle. `run` is XORed with row % 8 for 128-byte rows, and
// with row / 2 % 4 for 64-byte rows, of which two fill 128 bytes. Both patterns repeat after eight rows.
template <int kRowBytes>
__device__ __forceinline__ int swizzled_run(int row, int run) {
  static_assert(kRowBytes == 64 || kRowBytes == 128);
  constexpr int kRuns = kRowBytes / 16;
  return row * kRowBytes + (run ^ (row * kRowBytes / 128 % kRuns)) * 16;
}

// Copy kTokens rows of a head's channels from global memory; `first` points to token 0. Rows from `end` on are zeros.
// The caller commits, waits, and makes the rows visible to wgmma.
template <class T, int kD, int kTokens, int kThreads>
__device__ __forceinline__ void copy_rows(unsigned char* tile, const T* first, int pitch, int token0, int end) {
  constexpr int kRuns = kD * static_cast<int>(sizeof(T)) / 16;
  static_assert(kTokens * kRuns % kThreads == 0);
#pragma unroll 2  // all addresses at once would take registers from the kernel's loop
  for (int i = 0; i < kTokens * kRuns / kThreads; ++i) {
    const int run_idx = threadIdx.x + i * kThreads;
    const int row = run_idx / kRuns;
    const int run = run_idx % kRuns;
    const int token = token0 + row;
    ptx::cp_async<16>(tile + swizzled_run<2 * kD>(row, run),
                      token < end ? first + token * pitch + run * kVector<T> : first, token < end);
  }
}

// Descriptor of rows as an operand of either major. K-major: the rows are rows of A or columns of B, and the next K
// terms lie kTermBytes further on. MN-major: the rows are K terms, their elements the rows of A or the columns of B;
// there is one chunk, so that the stride between chunks is never read.
template <int kRowBytes>
__device__ __forceinline__ std::uint64_t rows_operand(const unsigned char* rows) {
  return ptx::wgmma_descriptor<kRowBytes>(rows, 8 * kRowBytes);
}

// Pack sixteen columns of sums, from column 16 `index` on, as an A operand: the layouts are the same.
template <class T, int kCount>
__device__ __forceinline__ void as_operand(std::uint32_t (&a)[4], const float (&sum)[kCount], int index) {
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = packed<T>(sum[8 * index + 2 * i], sum[8 * index + 2 * i + 1]);
}

// store_row() of wgmma's sums, of which a warp has sixteen rows.
template <class T, int kD>
__device__ __forceinline__ void store_sums(T* to, const float (&sum)[kD / 2], int half, float factor, bool inside) {
  float rows[kD / 8][4];
#pragma unroll
  for (int i = 0; i < kD / 2; ++i) rows[i / 4][i % 4] = sum[i];
  store_row<T, kD>(to, rows, half, factor, inside);
}

}  // namespace ladder::attention

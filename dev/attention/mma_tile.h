// Tiles of tokens for mma.sync: how rows lie in shared memory, and how fragments of them are loaded and multiplied in 16 bits;
// for tf32 tf32_tile.h does that. g = lane / 4 and t = lane % 4 are a lane's place in a fragment, as in dev/ptx/mma.h.
#pragma once

#include <cstdint>

#include "core/numeric.h"
#include "dev/attention/attention.h"
#include "dev/common/vectors.h"
#include "dev/ptx/cp_async.h"
#include "dev/ptx/ldmatrix.h"
#include "dev/ptx/mma.h"

namespace ladder::attention {

constexpr int kRunBytes = 16;

// NOTE: row r keeps its 16-byte run j at run j ^ (r % 8), so that ldmatrix finds eight rows in eight different groups of
// banks. kRowBytes is a multiple of 128.
template <int kRowBytes>
__device__ __forceinline__ int swizzled(int row, int run) {
  static_assert(kRowBytes % 128 == 0);
  return row * kRowBytes + (run ^ (row % 8)) * kRunBytes;
}

// kTokens rows of two heads' channels side by side, such as k and v: `first` and `second` are those of token 0 in global
// memory, their tokens `pitch` and `second_pitch` elements apart. Rows from `end` on are zeros. The caller commits.
template <class T, int kD, int kTokens, int kThreads>
__device__ __forceinline__ void copy_pairs(unsigned char* tile, const T* first, int pitch, const T* second,
                                           int second_pitch, int token0, int end) {
  constexpr int kRuns = kD * static_cast<int>(sizeof(T)) / kRunBytes;  // of one of the two
  constexpr int kElements = kRunBytes / sizeof(T);
  static_assert(kTokens * 2 * kRuns % kThreads == 0);
#pragma unroll 2  // all addresses at once would take registers from the kernel's loop
  for (int i = 0; i < kTokens * 2 * kRuns / kThreads; ++i) {
    const int run_idx = threadIdx.x + i * kThreads;
    const int row = run_idx / (2 * kRuns);
    const int run = run_idx % (2 * kRuns);
    const int token = token0 + row;
    const T* const from = run < kRuns ? first + token * pitch + run * kElements
                                      : second + token * second_pitch + (run - kRuns) * kElements;
    ptx::cp_async<kRunBytes>(tile + swizzled<2 * kRuns * kRunBytes>(row, run), token < end ? from : first, token < end);
  }
}

// B of s = a . rows^T: sixteen of a tile's rows, as columns, by sixteen channels from `run` on: b[0..1] are the first eight.
template <int kRowBytes>
__device__ __forceinline__ void load_columns(std::uint32_t (&b)[4], const unsigned char* tile, int row0, int run) {
  const int lane = threadIdx.x % 32;
  ptx::ldmatrix_x4(b, tile + swizzled<kRowBytes>(row0 + lane % 8 + lane / 16 * 8, run + lane / 8 % 2));
}

// B of sum = p . rows: sixteen of a tile's rows, summed over, by sixteen channels: b[0..1] are the first eight channels.
template <int kRowBytes>
__device__ __forceinline__ void load_summands(std::uint32_t (&b)[4], const unsigned char* tile, int row0, int run) {
  const int lane = threadIdx.x % 32;
  ptx::ldmatrix_x4_trans(b, tile + swizzled<kRowBytes>(row0 + lane % 16, run + lane / 16));
}

// A of sixteen of a tile's rows by sixteen channels.
template <int kRowBytes>
__device__ __forceinline__ void load_rows(std::uint32_t (&a)[4], const unsigned char* tile, int row0, int run) {
  const int lane = threadIdx.x % 32;
  ptx::ldmatrix_x4(a, tile + swizzled<kRowBytes>(row0 + lane % 16, run + lane / 16));
}

// A of sixteen rows straight from global memory, `row` being the lane's first: row g of the fragment. Zeros from `end` on.
template <class T, int kD>
__device__ __forceinline__ void load_rows(std::uint32_t (&a)[kD / 16][4], const T* rows, int pitch, int row, int end) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const T* const from = rows + (row + 8 * half) * pitch + 2 * t;
    const bool inside = row + 8 * half < end;
#pragma unroll
    for (int k = 0; k < kD / 16; ++k) {
      a[k][half] = inside ? *reinterpret_cast<const std::uint32_t*>(from + 16 * k) : 0;
      a[k][2 + half] = inside ? *reinterpret_cast<const std::uint32_t*>(from + 16 * k + 8) : 0;
    }
  }
}

// The sum of a row of o times one of d_o, kD channels.
template <class T, int kD>
__device__ __forceinline__ float delta_of(const T* o, const T* d_o) {
  float delta = 0;
#pragma unroll
  for (int x = 0; x < kD; x += kVector<T>) {
    float a[kVector<T>];
    float b[kVector<T>];
    unpack<T>(*reinterpret_cast<const uint4*>(o + x), a);
    unpack<T>(*reinterpret_cast<const uint4*>(d_o + x), b);
#pragma unroll
    for (int i = 0; i < kVector<T>; ++i) delta += a[i] * b[i];
  }
  return delta;
}

// d += a times each half of b.
template <class T>
__device__ __forceinline__ void multiply(float (&d0)[4], float (&d1)[4], const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[4]) {
  const std::uint32_t b0[2] = {b[0], b[1]};
  const std::uint32_t b1[2] = {b[2], b[3]};
  ptx::mma_m16n8k16<T>(d0, a, b0);
  ptx::mma_m16n8k16<T>(d1, a, b1);
}

}  // namespace ladder::attention

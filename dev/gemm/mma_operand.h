// Operands of the tensor-core versions: a step's tile of a matrix on its way from global to shared memory by cp.async, and
// from there into mma.sync's fragments. A step is 128 bytes of terms of the sums.
#pragma once

#include "core/numeric.h"
#include "dev/ptx/cp_async.h"
#include "dev/ptx/ldmatrix.h"
#include "dev/ptx/mma.h"

namespace ladder::gemm {

constexpr int kStepBytes = 128;
constexpr int kRunBytes = 16;
template <class T>
inline constexpr int kStepTerms = kStepBytes / sizeof(T);
template <class T>
inline constexpr int kRun = kRunBytes / sizeof(T);
inline constexpr int kMmasPerStep = 4;  // of 16 terms of 16 bits, or 8 of tf32

// kVectors: 16 bytes, all of them there or none. Else `count` single elements, and zeros.
template <bool kVectors, class T>
__device__ __forceinline__ void copy_run(unsigned char* to, const T* from, const T* fallback, int count) {
  if constexpr (kVectors) {
    ptx::cp_async<kRunBytes>(to, count > 0 ? from : fallback, count > 0);
  } else {
#pragma unroll 1
    for (int j = 0; j < kRun<T>; ++j) reinterpret_cast<T*>(to)[j] = j < count ? from[j] : from_float<T>(0.0f);
  }
}

// kExtent rows of a matrix whose sums run along its rows.
//
// NOTE: row r keeps its 16-byte run j at run j ^ (r % 8), so that ldmatrix finds eight rows in eight different bank groups,
// and so do the copies that fill a row.
template <class T, int kExtent>
struct AlongRowsTile {
  static constexpr int kBytes = kExtent * kStepBytes;

  static __device__ __forceinline__ int at(int row, int run) {
    return row * kStepBytes + (run ^ (row % 8)) * kRunBytes;
  }

  // Terms `first` to `end` - 1, of which a step takes kStepTerms, of rows first_row on; zeros behind the last.
  template <int kThreads, bool kVectors>
  static __device__ __forceinline__ void fetch(unsigned char* tile, const T* matrix, int row_length, int first_row,
                                               int rows, int first, int end) {
    constexpr int kRuns = kStepBytes / kRunBytes;
    constexpr int kRowStep = kThreads / kRuns;
    static_assert(kExtent % kRowStep == 0 && kRowStep % 8 == 0, "copies divide evenly and keep their swizzle");
    const int row = threadIdx.x / kRuns;
    const int term = first + static_cast<int>(threadIdx.x) % kRuns * kRun<T>;
    const T* from = matrix + static_cast<long long>(first_row + row) * row_length + term;
    unsigned char* to = tile + at(row, threadIdx.x % kRuns);
#pragma unroll
    for (int i = 0; i < kExtent / kRowStep; ++i) {
      const bool inside = first_row + row + i * kRowStep < rows;
      copy_run<kVectors>(to + i * kRowStep * kStepBytes, from + static_cast<long long>(i) * kRowStep * row_length,
                         matrix, inside ? end - term : 0);
    }
  }

  // The kk-th fragments of 16 rows as an A, and as two Bs side by side.
  static __device__ __forceinline__ void load_a(std::uint32_t (&a)[4], const unsigned char* tile, int row, int kk) {
    const int lane = threadIdx.x % 32;
    ptx::ldmatrix_x4(a, tile + at(row + lane % 16, 2 * kk + lane / 16));
  }
  static __device__ __forceinline__ void load_b(std::uint32_t (&b)[4], const unsigned char* tile, int row, int kk) {
    const int lane = threadIdx.x % 32;
    ptx::ldmatrix_x4(b, tile + at(row + lane % 8 + lane / 16 * 8, 2 * kk + lane / 8 % 2));
  }
};

// kExtent columns of a matrix whose sums run down its columns: fragments are transposed as ldmatrix loads them. It moves
// 16-bit elements only; of tf32, fragments are single words.
//
// NOTE: the padding. 16-bit: eight rows start four banks apart, so ldmatrix covers all banks once. tf32: a fragment's four
// terms are eight banks apart and its eight columns adjacent.
template <class T, int kExtent>
struct DownColumnsTile {
  static constexpr int kPitch = kExtent * sizeof(T) + (sizeof(T) == 4 ? 32 : 16);
  static constexpr int kBytes = kStepTerms<T> * kPitch;
  static_assert(kExtent % 32 == 0, "the padding is worked out for such rows");

  template <int kThreads, bool kVectors>
  static __device__ __forceinline__ void fetch(unsigned char* tile, const T* matrix, int row_length, int first_column,
                                               int columns, int first, int end) {
    constexpr int kRuns = kExtent / kRun<T>;
    static_assert(kStepTerms<T> * kRuns % kThreads == 0, "copies divide evenly");
#pragma unroll(kVectors ? kStepTerms <T>* kRuns / kThreads : 1)  // single elements take more addresses
    for (int i = 0; i < kStepTerms<T> * kRuns / kThreads; ++i) {
      const int index = threadIdx.x + i * kThreads;
      const int term = index / kRuns;
      const int column = index % kRuns * kRun<T>;
      copy_run<kVectors>(tile + term * kPitch + column * sizeof(T),
                         matrix + static_cast<long long>(first + term) * row_length + first_column + column, matrix,
                         first + term < end ? columns - first_column - column : 0);
    }
  }

  static __device__ __forceinline__ std::uint32_t word(const unsigned char* tile, int term, int column) {
    return *reinterpret_cast<const std::uint32_t*>(tile + term * kPitch + column * 4);
  }

  static __device__ __forceinline__ void load_a(std::uint32_t (&a)[4], const unsigned char* tile, int column, int kk) {
    const int lane = threadIdx.x % 32;
    if constexpr (sizeof(T) == 2) {
      // Matrices: terms 0-7 of columns 0-7 and 8-15, then terms 8-15.
      const int term = 16 * kk + lane / 16 * 8 + lane % 8;
      ptx::ldmatrix_x4_trans(a, tile + term * kPitch + (column + lane / 8 % 2 * 8) * 2);
    } else {
      const int term = 8 * kk + lane % 4;
      const int group = column + lane / 4;
      a[0] = word(tile, term, group), a[1] = word(tile, term, group + 8);
      a[2] = word(tile, term + 4, group), a[3] = word(tile, term + 4, group + 8);
    }
  }
  static __device__ __forceinline__ void load_b(std::uint32_t (&b)[4], const unsigned char* tile, int column, int kk) {
    const int lane = threadIdx.x % 32;
    if constexpr (sizeof(T) == 2) {
      // Matrices: terms 0-7 and 8-15 of columns 0-7, then of columns 8-15.
      const int term = 16 * kk + lane / 8 % 2 * 8 + lane % 8;
      ptx::ldmatrix_x4_trans(b, tile + term * kPitch + (column + lane / 16 * 8) * 2);
    } else {
      const int term = 8 * kk + lane % 4;
      const int group = column + lane / 4;
      b[0] = word(tile, term, group), b[1] = word(tile, term + 4, group);
      b[2] = word(tile, term, group + 8), b[3] = word(tile, term + 4, group + 8);
    }
  }
};

template <class T>
__device__ __forceinline__ void multiply(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1) {
  const std::uint32_t b[2] = {b0, b1};
  if constexpr (sizeof(T) == 4) {
    ptx::mma_m16n8k8_tf32(d, a, b);
  } else {
    ptx::mma_m16n8k16<T>(d, a, b);
  }
}

}  // namespace ladder::gemm

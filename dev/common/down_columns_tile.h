// An operand of mma.sync whose terms run down the columns of its matrix.
#pragma once

#include "dev/common/mma_operand.h"
#include "dev/ptx/ldmatrix.h"

namespace ladder {

// kExtent columns of a matrix [terms, columns]. ldmatrix transposes the fragments as it loads them; it moves 16-bit elements
// only, so tf32's fragments are loaded word by word.
//
// NOTE: the padding. 16-bit: eight rows start four banks apart, so ldmatrix covers all banks once. tf32: a fragment's four
// terms are eight banks apart and its eight columns adjacent.
template <class T, int kExtent>
struct DownColumnsTile {
  static constexpr int kPitch = kExtent * sizeof(T) + (sizeof(T) == 4 ? 32 : 16);
  static constexpr int kBytes = kStepTerms<T> * kPitch;
  static_assert(kExtent % 32 == 0, "the padding is worked out for such rows");

  template <int kThreads, bool kVectors>
  static __device__ __forceinline__ void fetch(unsigned char* tile, const T* matrix, int /*terms*/, int first_column,
                                               int columns, int first, int end) {
    constexpr int kRuns = kExtent / kRun<T>;
    static_assert(kStepTerms<T> * kRuns % kThreads == 0, "copies divide evenly");
#pragma unroll(kVectors ? kStepTerms <T>* kRuns / kThreads : 1)  // single elements take more addresses
    for (int i = 0; i < kStepTerms<T> * kRuns / kThreads; ++i) {
      const int index = threadIdx.x + i * kThreads;
      const int term = index / kRuns;
      const int column = index % kRuns * kRun<T>;
      copy_run<kVectors>(tile + term * kPitch + column * sizeof(T),
                         matrix + static_cast<long long>(first + term) * columns + first_column + column, matrix,
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

}  // namespace ladder

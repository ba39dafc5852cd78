// An operand of mma.sync whose terms lie along the rows of its matrix.
#pragma once

#include "dev/common/mma_operand.h"
#include "dev/ptx/ldmatrix.h"

namespace ladder {

// kExtent rows of a matrix [rows, terms].
//
// NOTE: row r keeps its 16-byte run j at run j ^ (r % 8), so that ldmatrix finds eight rows in eight different bank groups,
// and so do the copies that fill a row.
template <class T, int kExtent>
struct AlongRowsTile {
  static constexpr int kBytes = kExtent * kStepBytes;

  static __device__ __forceinline__ int offset_of(int row, int run) {
    return row * kStepBytes + (run ^ (row % 8)) * kRunBytes;
  }

  // A step of the terms `first` to `end` - 1, kStepTerms at most, of rows from first_row on; zeros beyond.
  template <int kThreads, bool kVectors>
  static __device__ __forceinline__ void fetch(unsigned char* tile, const T* matrix, int terms, int first_row, int rows,
                                               int first, int end) {
    constexpr int kRuns = kStepBytes / kRunBytes;
    constexpr int kRowStep = kThreads / kRuns;
    static_assert(kExtent % kRowStep == 0 && kRowStep % 8 == 0, "copies divide evenly and keep their swizzle");
    const int row = threadIdx.x / kRuns;
    const int term = first + static_cast<int>(threadIdx.x) % kRuns * kRun<T>;
    const T* from = matrix + static_cast<long long>(first_row + row) * terms + term;
    unsigned char* to = tile + offset_of(row, threadIdx.x % kRuns);
#pragma unroll
    for (int i = 0; i < kExtent / kRowStep; ++i) {
      const bool inside = first_row + row + i * kRowStep < rows;
      copy_run<kVectors>(to + i * kRowStep * kStepBytes, from + static_cast<long long>(i) * kRowStep * terms, matrix,
                         inside ? end - term : 0);
    }
  }

  // The kk-th fragments of 16 rows as an A, and as two Bs side by side.
  static __device__ __forceinline__ void load_a(std::uint32_t (&a)[4], const unsigned char* tile, int row, int kk) {
    const int lane = threadIdx.x % 32;
    ptx::ldmatrix_x4(a, tile + offset_of(row + lane % 16, 2 * kk + lane / 16));
  }
  static __device__ __forceinline__ void load_b(std::uint32_t (&b)[4], const unsigned char* tile, int row, int kk) {
    const int lane = threadIdx.x % 32;
    ptx::ldmatrix_x4(b, tile + offset_of(row + lane % 8 + lane / 16 * 8, 2 * kk + lane / 8 % 2));
  }
};

}  // namespace ladder

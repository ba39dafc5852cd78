// Operands of the fp32 register tile, from global memory through registers to shared memory, where the terms of the sums lie
// outermost, [kChunk][kPitch], for dev/common/ffma_tile.h.
#pragma once

#include "core/device.h"

namespace ladder {

inline constexpr int kChunk = 16;  // terms

// Four neighbouring elements, or zeros; those from `valid` on are zeros. Without kVectors they may lie anywhere.
template <bool kVectors>
__device__ __forceinline__ float4 fetch_four(const float* from, int valid) {
  if constexpr (kVectors) return valid > 0 ? *reinterpret_cast<const float4*>(from) : float4{0, 0, 0, 0};
  return {valid > 0 ? from[0] : 0.0f, valid > 1 ? from[1] : 0.0f, valid > 2 ? from[2] : 0.0f,
          valid > 3 ? from[3] : 0.0f};
}

// kExtent rows of a matrix [rows, terms], transposed as they are stored.
template <int kExtent, int kPitch, int kThreads, bool kVectors>
struct AlongRows {
  static constexpr int kRuns = kChunk / 4;
  static constexpr int kRowStep = kThreads / kRuns;
  static constexpr int kLoads = kExtent / kRowStep;
  static_assert(kLoads * kRowStep == kExtent, "loads divide evenly");
  const float* row;  // this thread's first one
  long long step;    // from one of its rows to the next
  int rows;          // from the first one on
  float4 fetched[kLoads];

  __device__ __forceinline__ AlongRows(const float* matrix, int first_row, int num_rows, int terms) {
    const int thread_row = first_row + static_cast<int>(threadIdx.x) / kRuns;
    rows = num_rows - thread_row;
    row = matrix + static_cast<long long>(thread_row) * terms;
    step = static_cast<long long>(kRowStep) * terms;
  }
  // Terms `first` to `end` - 1 of the sums, of which a chunk takes kChunk.
  __device__ __forceinline__ void fetch(int first, int end) {
    const int term = first + static_cast<int>(threadIdx.x) % kRuns * 4;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      fetched[i] = fetch_four<kVectors>(row + i * step + term, i * kRowStep < rows ? end - term : 0);
    }
  }
  __device__ __forceinline__ void put(float* smem) const {
    float* const to = smem + threadIdx.x % kRuns * 4 * kPitch + threadIdx.x / kRuns;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      to[i * kRowStep] = fetched[i].x;
      to[i * kRowStep + kPitch] = fetched[i].y;
      to[i * kRowStep + 2 * kPitch] = fetched[i].z;
      to[i * kRowStep + 3 * kPitch] = fetched[i].w;
    }
  }
};

// kExtent columns of a matrix [terms, columns].
template <int kExtent, int kPitch, int kThreads, bool kVectors>
struct DownColumns {
  static constexpr int kRuns = kExtent / 4;
  static constexpr int kRowStep = kThreads / kRuns;
  static constexpr int kLoads = kChunk / kRowStep;
  static_assert(kLoads * kRowStep == kChunk, "loads divide evenly");
  const float* column;
  int columns;  // from this thread's first one on
  int row_length;
  float4 fetched[kLoads];

  __device__ __forceinline__ DownColumns(const float* matrix, int first_column, int num_columns, int /*terms*/) {
    const int thread_column = first_column + static_cast<int>(threadIdx.x) % kRuns * 4;
    column = matrix + thread_column;
    columns = num_columns - thread_column;
    row_length = num_columns;
  }
  __device__ __forceinline__ void fetch(int first, int end) {
    const int term = first + static_cast<int>(threadIdx.x) / kRuns;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int row = term + i * kRowStep;
      fetched[i] = fetch_four<kVectors>(column + static_cast<long long>(row) * row_length, row < end ? columns : 0);
    }
  }
  __device__ __forceinline__ void put(float* smem) const {
    float* const to = smem + threadIdx.x / kRuns * kPitch + threadIdx.x % kRuns * 4;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) *reinterpret_cast<float4*>(to + i * kRowStep * kPitch) = fetched[i];
  }
};

}  // namespace ladder

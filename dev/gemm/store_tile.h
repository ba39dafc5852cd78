// Stores a block's tile of sums from shared memory, through the epilogue.
#pragma once

#include "dev/common/vectors.h"
#include "dev/gemm/epilogue.h"

namespace ladder::gemm {

// Stores a tile of sums, fp32 in shared memory with `pitch` elements a row (a multiple of 4), into rows x cols of `out` (a
// T* or a ConcatOperand<T>). kSlices tiles that lie `slice` elements apart are added in order. All kThreads threads of the
// block take part, after a barrier that follows the last write of `tile`.
template <int kThreads, int kBlockM, int kBlockN, int kSlices = 1, class T, class P, class Out>
__device__ __forceinline__ void store_tile(const float* tile, int pitch, int slice, int row0, int col0, int rows,
                                           int cols, const Epilogue<T, P>& epilogue, Out out) {
  constexpr int kVec = kVector<T>;
  constexpr int kRuns = kBlockM * kBlockN / kVec;
  const auto sum_of = [&](int row, int col) {
    float sum = tile[row * pitch + col];
#pragma unroll
    for (int s = 1; s < kSlices; ++s) sum += tile[s * slice + row * pitch + col];
    return sum;
  };
  const auto four_sums = [&](int row, int col) {
    float4 sum = *reinterpret_cast<const float4*>(tile + row * pitch + col);
#pragma unroll
    for (int s = 1; s < kSlices; ++s) {
      const float4 more = *reinterpret_cast<const float4*>(tile + s * slice + row * pitch + col);
      sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    return sum;
  };
  if (in_runs<kVec>(out, cols)) {
    // Load the residual a few vectors ahead: nothing else hides the latency.
    constexpr int kBatch = 4;
    for (int first = threadIdx.x; first < kRuns; first += kBatch * kThreads) {
      uint4 residual[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int i = first + b * kThreads;
        const int row = row0 + i / (kBlockN / kVec);
        const int col = col0 + i % (kBlockN / kVec) * kVec;
        residual[b] = {0, 0, 0, 0};
        if (epilogue.residual && i < kRuns && row < rows && col < cols) {
          const long long index = static_cast<long long>(row) * cols + col;
          residual[b] = *reinterpret_cast<const uint4*>(epilogue.residual + index);
        }
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int i = first + b * kThreads;
        const int row = i / (kBlockN / kVec);
        const int col = i % (kBlockN / kVec) * kVec;
        if (i >= kRuns || row0 + row >= rows || col0 + col >= cols) continue;
        float added[kVec], bias[kVec], v[kVec];
        unpack<T>(residual[b], added);
#pragma unroll
        for (int j = 0; j < kVec; j += 4) {
          const float4 sums = four_sums(row, col + j);
          v[j] = sums.x, v[j + 1] = sums.y, v[j + 2] = sums.z, v[j + 3] = sums.w;
          const float4 more = epilogue.bias ? parameter_quad(epilogue.bias + col0 + col + j) : float4{};
          bias[j] = more.x, bias[j + 1] = more.y, bias[j + 2] = more.z, bias[j + 3] = more.w;
        }
#pragma unroll
        for (int j = 0; j < kVec; ++j) {
          if (epilogue.bias) v[j] += bias[j];
          if (epilogue.residual) v[j] += added[j];
          if (epilogue.silu) v[j] = silu(v[j]);
        }
        *reinterpret_cast<uint4*>(element_at(out, row0 + row, col0 + col, cols)) = pack<T>(v);
      }
    }
  } else {
    for (int i = threadIdx.x; i < kBlockM * kBlockN; i += kThreads) {
      const int row = row0 + i / kBlockN;
      const int col = col0 + i % kBlockN;
      if (row >= rows || col >= cols) continue;
      const long long index = static_cast<long long>(row) * cols + col;
      *element_at(out, row, col, cols) = from_float<T>(epilogue(sum_of(i / kBlockN, i % kBlockN), col, index));
    }
  }
}

}  // namespace ladder::gemm

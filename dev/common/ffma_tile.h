// A block's tile of sums on the FMA pipe: what the fp32 matrix-product versions share.
//
// Operands lie in shared memory with the reduction outermost, A [kChunk][kPitchM] and B [kChunk][kPitchN]; a thread holds
// kThreadM x kThreadN sums, in runs of four that lie far enough apart for 16-byte loads to meet no bank twice.
#pragma once

#include "core/device.h"

namespace ladder {

template <int kBlockM_, int kBlockN_, int kThreadM_, int kThreadN_>
struct FfmaTile {
  static constexpr int kBlockM = kBlockM_, kBlockN = kBlockN_, kThreadM = kThreadM_, kThreadN = kThreadN_;
  static constexpr int kThreadsN = kBlockN / kThreadN;
  static constexpr int kThreads = kBlockM / kThreadM * kThreadsN;
  static constexpr int kPitchM = kBlockM + 4;  // transposing stores of a warp: at most two to a bank
  static constexpr int kPitchN = kBlockN + 4;
  static_assert(kThreadM % 4 == 0 && kThreadN % 4 == 0, "operands are read as float4");

  // Row of the tile that sum i of this thread belongs to, and the column of sum j.
  static __device__ __forceinline__ int row(int i) {
    return threadIdx.x / kThreadsN * 4 + i / 4 * (kBlockM / (kThreadM / 4)) + i % 4;
  }
  static __device__ __forceinline__ int col(int j) {
    return threadIdx.x % kThreadsN * 4 + j / 4 * (kBlockN / (kThreadN / 4)) + j % 4;
  }

  // sum += A B over a chunk.
  template <int kChunk>
  static __device__ __forceinline__ void multiply(float (&sum)[kThreadM][kThreadN], const float* as, const float* bs) {
#pragma unroll
    for (int c = 0; c < kChunk; ++c) {
      float a[kThreadM], b[kThreadN];
#pragma unroll
      for (int i = 0; i < kThreadM; i += 4) {
        const float4 v = *reinterpret_cast<const float4*>(as + c * kPitchM + row(i));
        a[i] = v.x, a[i + 1] = v.y, a[i + 2] = v.z, a[i + 3] = v.w;
      }
#pragma unroll
      for (int j = 0; j < kThreadN; j += 4) {
        const float4 v = *reinterpret_cast<const float4*>(bs + c * kPitchN + col(j));
        b[j] = v.x, b[j + 1] = v.y, b[j + 2] = v.z, b[j + 3] = v.w;
      }
#pragma unroll
      for (int i = 0; i < kThreadM; ++i) {
#pragma unroll
        for (int j = 0; j < kThreadN; ++j) sum[i][j] += a[i] * b[j];
      }
    }
  }
};

// kVec elements from global memory, or zeros.
template <int kVec>
__device__ __forceinline__ void fetch_run(float (&to)[kVec], const float* from, bool valid) {
  if constexpr (kVec == 4) {
    const float4 v = valid ? *reinterpret_cast<const float4*>(from) : float4{0, 0, 0, 0};
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  } else {
    to[0] = valid ? *from : 0.0f;
  }
}

}  // namespace ladder

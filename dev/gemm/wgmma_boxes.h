// What a block of wgrad's wgmma versions has: both operands as boxes of 64 rows x 64 columns in one ring of stages, a
// warpgroup for every 64 output features, a producer warp, and four warps that sum dy's columns for dbias.
#pragma once

#include <algorithm>

#include "dev/common/vectors.h"
#include "dev/gemm/wgmma_tile.h"

namespace ladder::gemm {

inline constexpr int kBoxColumns = 64;  // of dy or x, that a copy brings: a swizzled row
inline constexpr int kStepRows = 64;
inline constexpr int kBoxBytes = kStepRows * kStepRowBytes;
inline constexpr int kBiasWarps = 4;

// 64 output features for each of kGroups warpgroups x kColumns input features.
template <int kGroups_, int kColumns_>
struct BoxTile {
  static constexpr int kGroups = kGroups_, kColumns = kColumns_;
  static constexpr int kFeatures = kGroups * kBoxColumns;
  static constexpr int kConsumerWarps = kGroups * 4;
  static constexpr int kThreads = (kConsumerWarps + 1 + kBiasWarps) * 32;  // one producer warp
  static constexpr int kStageBytes = (kGroups + kColumns / kBoxColumns) * kBoxBytes;
  static constexpr int kMaxStages = 12;
  static constexpr int kSmemLimit = 227 * 1024 - 2 * kMaxStages * static_cast<int>(sizeof(ptx::Mbarrier));
  static constexpr int kStages = std::min(kMaxStages, kSmemLimit / kStageBytes);
  static constexpr std::size_t kSmemBytes = std::size_t{kStages} * kStageBytes + 2 * kStages * sizeof(ptx::Mbarrier);

  // Nanoseconds, roughly, of an H200, that a step takes: it comes at an SM's share of the L2's rate and is multiplied at
  // three quarters of the tensor cores' rate.
  static constexpr double kStepNs =
      std::max(kStageBytes / 60.0, static_cast<double>(kFeatures) * kColumns * kStepRows / 2800);

  static int count(const Problem& p) { return ceil_div(p.n, kFeatures) * ceil_div(p.k, kColumns); }
};

// The sums of a step's rows of two output features a lane: 2 (lane % 8) and the next of the 16 that the warp-th bias warp
// has of a box, in every fourth pair of rows, which keeps the lanes in different banks.
template <class T>
__device__ __forceinline__ void add_columns(float (&sum)[2], const unsigned char* box, int warp) {
  const int lane = threadIdx.x % 32;
  const int word = warp * 8 + lane % 8;
#pragma unroll
  for (int j = 0; j < kStepRows / 4; ++j) {
    const int row = j / 2 * 8 + lane / 8 * 2 + j % 2;
    const unsigned pair[1] = {
        *reinterpret_cast<const unsigned*>(box + row * kStepRowBytes + (word / 4 ^ row % 8) * 16 + word % 4 * 4)};
    float values[2];
    unpack<T, 1>(pair, values);
    sum[0] += values[0], sum[1] += values[1];
  }
}

// The same of all the lanes that have these two features: in lanes 0 to 7.
__device__ __forceinline__ void add_lanes(float (&sum)[2]) {
#pragma unroll
  for (int distance = 8; distance < 32; distance *= 2) {
    sum[0] += __shfl_xor_sync(0xffffffff, sum[0], distance);
    sum[1] += __shfl_xor_sync(0xffffffff, sum[1], distance);
  }
}

}  // namespace ladder::gemm

// Sums of rows [rows][c] into dgamma and dbeta. A block takes 32 channels, eight threads each. A thread adds every
// eighth row, then one thread of a channel adds up the eight sums.
#pragma once

#include "dev/groupnorm/parameters.h"

namespace ladder::groupnorm {

inline constexpr int kParameterChannels = 32;
inline constexpr int kParameterGroups = 8;
inline constexpr int kParameterThreads = kParameterChannels * kParameterGroups;

__host__ __device__ constexpr int parameter_blocks(int c) { return ceil_div(c, kParameterChannels); }

// Channel of the thread in block `tile` of parameter_blocks(), and its index among the eight threads of the channel.
__device__ __forceinline__ int parameter_channel(int tile) {
  return tile * kParameterChannels + static_cast<int>(threadIdx.x) % kParameterChannels;
}
__device__ __forceinline__ int parameter_group() { return static_cast<int>(threadIdx.x) / kParameterChannels; }

// Adds up the sums of a channel's threads and stores dgamma and dbeta. Called by all threads of block `tile`.
template <class P>
__device__ __forceinline__ void store_parameters(float2 sum, int c, int tile, float* dgamma, float* dbeta) {
  LADDER_SHARED(float2, partial, [kParameterGroups][kParameterChannels]);
  const int column = static_cast<int>(threadIdx.x) % kParameterChannels;
  const int channel = parameter_channel(tile);
  partial[parameter_group()][column] = sum;
  __syncthreads();
  if (parameter_group() > 0 || channel >= c) return;
#pragma unroll
  for (int g = 1; g < kParameterGroups; ++g) {
    sum.x += partial[g][column].x;
    sum.y += partial[g][column].y;
  }
  store_parameter<P>(dbeta, channel, sum.x);
  store_parameter<P>(dgamma, channel, sum.y);
}

// Adds up `sums` [rows][c], of (sum of dz, sum of dz * xhat), into dgamma and dbeta. Called by all threads of block
// `tile`.
template <class P = float>
__device__ __forceinline__ void sum_parameters(const float2* sums, int rows, int c, int tile, float* dgamma,
                                               float* dbeta) {
  const int channel = parameter_channel(tile);
  float2 sum{0, 0};
  if (channel < c) {
#pragma unroll 4
    for (int row = parameter_group(); row < rows; row += kParameterGroups) {
      const float2 v = sums[static_cast<long long>(row) * c + channel];
      sum.x += v.x, sum.y += v.y;
    }
  }
  store_parameters<P>(sum, c, tile, dgamma, dbeta);
}

}  // namespace ladder::groupnorm

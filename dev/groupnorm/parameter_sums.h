// Sums of rows [rows][c] into dgamma and dbeta: a block takes 32 channels, eight threads for each, which add every eighth row
// and then each other's sums.
#pragma once

#include "dev/groupnorm/parameters.h"

namespace ladder::groupnorm {

inline constexpr int kParameterChannels = 32;
inline constexpr int kParameterGroups = 8;
inline constexpr int kParameterThreads = kParameterChannels * kParameterGroups;

__host__ __device__ constexpr int parameter_blocks(int c) { return ceil_div(c, kParameterChannels); }

// The channel of a thread of block `tile` of parameter_blocks(), and which of the threads that share it it is.
__device__ __forceinline__ int parameter_channel(int tile) {
  return tile * kParameterChannels + static_cast<int>(threadIdx.x) % kParameterChannels;
}
__device__ __forceinline__ int parameter_group() { return static_cast<int>(threadIdx.x) / kParameterChannels; }

// By all threads of block `tile`: adds up what those of a channel have.
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

// By all threads of block `tile`: rows of (sum of dz, sum of dz * xhat).
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

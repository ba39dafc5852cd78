// Operands of the tensor-core versions: rows of x in shared memory are A, 16 positions, and weights are B, 8 output
// channels. Both are read in runs of 16 bytes.
//
// A step is 32 channels of a tap, two mma.sync. The order of a sum's terms is free as long as both operands agree: lane
// t of four has channels 8t .. 8t+7, 16 bytes. The first mma takes 8t .. 8t+3, the second the others.
#pragma once

#include "dev/conv1d/x_rows.h"

namespace ladder::conv1d {

inline constexpr int kStepChannels = 32;
inline constexpr int kStepRowBytes = 64;

// A block's tile of sums: 16 kTiles positions times 8 kColumns output channels.
template <int kTiles_, int kColumns_>
struct OutputTile {
  static constexpr int kTiles = kTiles_, kColumns = kColumns_;
  static constexpr int kPositions = 16 * kTiles, kChannels = 8 * kColumns;
};
using Narrow = OutputTile<1, 1>;
using Wide = OutputTile<2, 2>;
using Tall = OutputTile<4, 1>;

// A step of the reduction. Steps are numbered tap by tap; a tap has `channel_blocks` blocks of 32 channels.
struct KStep {
  int tap, channel_block;

  __device__ __forceinline__ KStep(int index, int channel_blocks)
      : tap(index / channel_blocks), channel_block(index % channel_blocks) {}
  __device__ __forceinline__ void advance(int by, int channel_blocks) {
    channel_block += by;
    for (; channel_block >= channel_blocks; channel_block -= channel_blocks) ++tap;
  }
};

// Pitch of a row of x in shared memory, in bytes: rows are half a bank cycle apart, so that the two rows that eight
// lanes read together have no bank conflicts.
__host__ __device__ inline int x_pitch(int channel_blocks) {
  return (channel_blocks + (channel_blocks + 1) % 2) * kStepRowBytes;
}

// Adds a step's products to sum. x_row_lo, x_row_hi: 16 bytes of the lane's row and of the row 8 positions later;
// w: 16 bytes of the lane's channel.
template <class T>
__device__ __forceinline__ void multiply_step(float (&sum)[4], const uint4& x_row_lo, const uint4& x_row_hi,
                                              const uint4& w) {
  multiply<T>(sum, {x_row_lo.x, x_row_hi.x, x_row_lo.y, x_row_hi.y}, w.x, w.y);
  multiply<T>(sum, {x_row_lo.z, x_row_hi.z, x_row_lo.w, x_row_hi.w}, w.z, w.w);
}

// Stores a part of a tile's sums, [position][channel]: lane (g, t) has positions g, g + 8 and channels 2t, 2t + 1.
template <int kChannels>
__device__ __forceinline__ void put_sums(float* part, const float (&sum)[4], int position, int channel) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* const to = part + (position + lane / 4) * kChannels + channel + lane % 4 * 2;
  *reinterpret_cast<float2*>(to) = {sum[0], sum[1]};
  *reinterpret_cast<float2*>(to + 8 * kChannels) = {sum[2], sum[3]};
}

}  // namespace ladder::conv1d

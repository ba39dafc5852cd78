// The way of a warp's wgmma sums of a patch to an image: by way of a few rows of shared memory that are the warp's own, so
// that it writes 128 bytes of a pixel at a time and waits for no other warp.
#pragma once

#include <cstdint>

#include "dev/common/parameter_type.h"
#include "dev/common/vectors.h"
#include "dev/conv3x3/patches.h"

namespace ladder::conv3x3 {

// 16 pixels, two rows of a patch, x 64 channels of T, 16 bits each; 16 bytes of padding spread eight rows over all banks.
template <class T>
struct PatchStore {
  static_assert(sizeof(T) == 2);
  static constexpr int kChannels = 64;
  static constexpr int kPitch = kChannels * 2 + 16;  // bytes
  static constexpr int kBytes = 16 * kPitch;

  // Adds bias [channels], if it is not null, and stores the channels from `channel0` on of the warp's rows of the patch at
  // `position` into `image` [n, h, w, channels]; `channels` is a multiple of 8. Warps of a warpgroup have two rows each.
  template <class P>
  static __device__ __forceinline__ void store(unsigned char* staging, const Problem& p, const float (&sum)[32],
                                               PatchPosition position, int channel0, int channels, const P* bias,
                                               T* image) {
    const int lane = threadIdx.x % 32;
    // All of them before the first store to shared memory, which the compiler must take for their memory too.
    float2 of_pair[kChannels / 8];
#pragma unroll
    for (int j = 0; j < kChannels / 8; ++j) {
      const int channel = channel0 + 8 * j + lane % 4 * 2;
      of_pair[j] = bias && channel < channels ? parameter_pair(bias + channel) : float2{0.0f, 0.0f};
    }
#pragma unroll
    for (int j = 0; j < kChannels / 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float pair[2] = {sum[4 * j + 2 * half] + of_pair[j].x, sum[4 * j + 2 * half + 1] + of_pair[j].y};
        unsigned rounded[1];
        pack<T, 1>(pair, rounded);
        *reinterpret_cast<unsigned*>(staging + (lane / 4 + 8 * half) * kPitch + (8 * j + lane % 4 * 2) * 2) =
            rounded[0];
      }
    }
    __syncwarp();
    constexpr int kRuns = kChannels / 8;  // of 16 bytes, of a pixel
#pragma unroll
    for (int i = 0; i < 16 * kRuns / 32; ++i) {
      const int pixel = i * (32 / kRuns) + lane / kRuns;
      const int row = position.row + static_cast<int>(threadIdx.x) / 32 % 4 * 2 + pixel / kPatch;
      const int col = position.col + pixel % kPatch;
      const int channel = channel0 + lane % kRuns * 8;
      if (position.image >= p.n || row >= p.h || col >= p.w || channel >= channels) continue;
      T* const to = image + static_cast<long long>((position.image * p.h + row) * p.w + col) * channels + channel;
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(staging + pixel * kPitch + lane % kRuns * 16);
    }
    __syncwarp();  // all have read: the rows may be filled again
  }
};

}  // namespace ladder::conv3x3

// Epilogue of a warpgroup: stores wgmma's sums, 64 channels (rows) x pixels (columns), plus bias, embedding and
// residual, in an image [n, h, w, channels]. The sums pass through rows of shared memory, 128 bytes a pixel; each warp
// writes the 32 bytes of its own channels.
#pragma once

#include "dev/common/vectors.h"
#include "dev/conv3x3/addends.h"
#include "dev/conv3x3/taps.h"
#include "dev/ptx/cp_async.h"
#include "dev/ptx/ldmatrix.h"
#include "dev/ptx/mbarrier.h"

namespace ladder::conv3x3 {

inline constexpr int kGroupThreads = 128;

// A patch is kPixels pixels, eight a row.
template <class T, int kPixels>
struct ColumnStore {
  static_assert(sizeof(T) == 2);
  static_assert(kRowBytes == kTileChannels * sizeof(T));
  static constexpr int kBytes = kPixels * kRowBytes;

  unsigned char* rows;  // [kPixels][64 channels]; in a row, runs of 16 bytes are swizzled by the pixel
  ptx::Mbarrier* met;   // barrier of the warpgroup, one arrival a warp
  int channel0, channels;
  unsigned parity = 0;

  // Barrier of all threads of the warpgroup.
  __device__ __forceinline__ void meet() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(met);
    ptx::mbarrier_wait(met, parity);
    parity ^= 1;
  }

  // Calls f(run in the rows, element of the image, true if it is in the image) for each of a thread's runs of eight
  // channels.
  template <class F>
  __device__ __forceinline__ void for_runs(const Problem& p, const PatchPosition& position, const F& f) const {
    const int run = threadIdx.x % 8;
    const int channel = channel0 + run * 8;
    const bool any = position.image < p.n && channel < channels;
#pragma unroll 8
    for (int pixel = threadIdx.x % kGroupThreads / 8; pixel < kPixels; pixel += kGroupThreads / 8) {
      const int row = position.row + pixel / kPatch;
      const int col = position.col + pixel % kPatch;
      f(rows + pixel * kRowBytes + (run ^ pixel % 8) * 16,
        static_cast<long long>((position.image * p.h + row) * p.w + col) * channels + channel,
        any && row < p.h && col < p.w);
    }
  }

  // Returns the channel of one of the lane's two rows of sums: 16 warp + lane / 4, and eight further for half = 1.
  __device__ __forceinline__ int channel_of_lane(int half) const {
    return channel0 + static_cast<int>(threadIdx.x) / 32 % 4 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half;
  }

  // Starts to copy the residual into the rows. Returns bias plus embedding of the lane's two channels.
  __device__ __forceinline__ float2 fetch(const Problem& p, const PatchPosition& position,
                                          const Addends<T>& addends) const {
    if (addends.residual) {
      for_runs(p, position, [&](unsigned char* to, long long i, bool inside) {
        ptx::cp_async<16>(to, addends.residual + (inside ? i : 0), inside);
      });
    }
    ptx::cp_async_commit();
    float added[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int channel = channel_of_lane(half);
      if (channel >= channels || position.image >= p.n) continue;
      if (addends.bias) added[half] = addends.bias[channel];
      if (addends.e) added[half] += addends.e[static_cast<long long>(position.image) * addends.pitch + channel];
    }
    return {added[0], added[1]};
  }

  // Stores the sums plus `added`, and with kResidual plus the residual in the rows, in the rows, rounded.
  template <bool kResidual>
  __device__ __forceinline__ void finish(const float (&sum)[kPixels / 2], float2 added) const {
    const int lane = threadIdx.x % 32;
    const int run = threadIdx.x / 32 % 4 * 2 + lane / 8 % 2;
    unsigned char* row = rows + (lane / 16 * 8 + lane % 8) * kRowBytes + (run ^ lane % 8) * 16;
#pragma unroll
    for (int j = 0; j < kPixels / 16; ++j, row += 16 * kRowBytes) {
      std::uint32_t words[4] = {};
      if constexpr (kResidual) ptx::ldmatrix_x4_trans(words, row);
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // two pixels of a channel; the lane's two channels alternate
        unsigned word[1] = {words[i]};
        float pair[2] = {};
        if constexpr (kResidual) unpack<T, 1>(word, pair);
        const float more = i % 2 == 0 ? added.x : added.y;
        pair[0] += sum[8 * j + 2 * i] + more;
        pair[1] += sum[8 * j + 2 * i + 1] + more;
        pack<T, 1>(pair, word);
        words[i] = word[0];
      }
      ptx::stmatrix_x4_trans(row, words);
    }
  }

  // Stores the sums of a patch in `image`; `added` is fetch()'s result. On return the rows may be filled again.
  __device__ __forceinline__ void store(const Problem& p, const PatchPosition& position,
                                        const float (&sum)[kPixels / 2], float2 added, bool has_residual, T* image) {
    if (has_residual) {
      ptx::cp_async_wait<0>();
      meet();  // the residual has arrived, from all threads
      finish<true>(sum, added);
    } else {
      finish<false>(sum, added);
    }
    meet();
    for_runs(p, position, [&](const unsigned char* from, long long i, bool inside) {
      if (inside) *reinterpret_cast<uint4*>(image + i) = *reinterpret_cast<const uint4*>(from);
    });
    meet();
  }
};

}  // namespace ladder::conv3x3

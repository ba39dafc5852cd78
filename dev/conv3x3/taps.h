// Weights of a tap, 64 x 64 channels of 16 bits, loaded from w [k][tap][c] by the TMA and read by wgmma: for versions
// that keep all nine taps in shared memory.
#pragma once

#include "dev/conv3x3/halo_patch.h"

namespace ladder::conv3x3 {

inline constexpr int kChunk = 64;  // channels that are summed over at a time
inline constexpr int kMmaK = 16;
inline constexpr int kTileChannels = 64;  // output channels of a block
inline constexpr int kTapBytes = kChunk * kTileChannels * 2;

// Taps of fprop, with w's layout unchanged: a row of shared memory is 64 channels c of an output channel, so the
// operand is K-major.
struct ForwardTaps {
  static __host__ __device__ int channels_in(const Problem& p) { return p.c; }
  static __host__ __device__ int channels_out(const Problem& p) { return p.k; }

  static __device__ __forceinline__ void load(unsigned char* to, const ptx::TensorMap& map, ptx::Mbarrier* full,
                                              int chunk, int tap, int k0) {
    ptx::tma_load(to, map, full, chunk * kChunk, tap, k0);  // [64 of k][64 of c]
  }
  static __device__ __forceinline__ std::uint64_t operand(const unsigned char* weights, int step) {
    return ptx::wgmma_descriptor(weights + step * kMmaK * 2, 8 * kRowBytes);
  }
};

// Taps of dgrad, with w's layout unchanged: a row of shared memory is 64 channels c of one k that is summed over, so
// the operand is MN-major. Taps are counted backwards.
struct BackwardTaps {
  static __host__ __device__ int channels_in(const Problem& p) { return p.k; }
  static __host__ __device__ int channels_out(const Problem& p) { return p.c; }

  static __device__ __forceinline__ void load(unsigned char* to, const ptx::TensorMap& map, ptx::Mbarrier* full,
                                              int chunk, int tap, int c0) {
    ptx::tma_load(to, map, full, c0, 8 - tap, chunk * kChunk);  // [64 of k][64 of c]
  }
  static __device__ __forceinline__ std::uint64_t operand(const unsigned char* weights, int step) {
    return ptx::wgmma_descriptor_mn(weights + step * kMmaK * kRowBytes, 8 * kRowBytes, kTapBytes);
  }
};

// Starts the loads of a chunk of all nine taps, each with its own barrier. Weights and barriers are [chunk][tap].
// Called by one thread.
template <class Weights>
__device__ __forceinline__ void load_taps_once(unsigned char* weights, const ptx::TensorMap& map, ptx::Mbarrier* full,
                                               int chunk, int channel0) {
  for (int tap = 0; tap < 9; ++tap) {
    ptx::Mbarrier* const filled = full + chunk * 9 + tap;
    ptx::mbarrier_arrive_expect_tx(filled, kTapBytes);
    Weights::load(weights + (chunk * 9 + tap) * kTapBytes, map, filled, chunk, tap, channel0);
  }
}

}  // namespace ladder::conv3x3

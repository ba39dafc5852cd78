// The filters of kN output channels in shared memory, as wgmma's operand B for the order of terms of row_ring.h: chunks of
// four steps, each [kN rows][128 bytes] under the 128-byte swizzle.
//
// Rows are ordered so that a lane's sums of a pixel are runs of four output channels: channel 16a + 4t + 2b + e is row
// 16a + 8b + 2t + e, of which lane (g, t) holds columns 8j + 2t + e.
#pragma once

#include "dev/conv_stem/row_ring.h"
#include "dev/ptx/wgmma.h"

namespace ladder::conv_stem {

inline constexpr int kChunkSteps = 4;
inline constexpr int kChunks = ceil_div(kSteps, kChunkSteps);
template <int kN>
inline constexpr int kFilterBytes = kChunks* kN * 128;

// Descriptor of a step's filters, from the first step's.
template <int kN>
__device__ __forceinline__ std::uint64_t step_filters(std::uint64_t first, int step) {
  return ptx::wgmma_ahead(first, step / kChunkSteps * kN * 128 + step % kChunkSteps * 32);
}

// Calls put(byte, first, second) for each pair of terms of the filters of kN output channels from channel0 on. Channels
// beyond k and the terms that fill up the last step are zeros. Called by all kThreads threads of the block.
template <int kN, int kThreads, class Put>
__device__ __forceinline__ void arrange_filters(const Problem& p, const float* w, int channel0, Put&& put) {
  constexpr int kStepPairs = kStepTerms / 2;
  constexpr int kPairs = kN * kSteps * kStepPairs;
  constexpr int kBatch = 12;  // loads in flight
  for (int first = threadIdx.x; first < kPairs; first += kBatch * kThreads) {
    float2 pairs[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int pair_idx = first + i * kThreads;
      const int pair = pair_idx % kStepPairs;
      const int step = pair_idx / kStepPairs % kSteps;
      const int channel = channel0 + pair_idx / kStepPairs / kSteps;
      const bool in_row = step < kRowSteps;
      const int term =
          in_row ? step / 2 * kFilterRow + step % 2 * kStepTerms + 2 * pair : 2 * pair * kFilterRow + kFilterRow - 1;
      const int next = term + (in_row ? 1 : kFilterRow);
      const bool exists = pair_idx < kPairs && channel < p.k;
      const float* const filter = w + channel * kFilterSize;
      pairs[i].x = exists && term < kFilterSize ? filter[term] : 0.0f;
      pairs[i].y = exists && next < kFilterSize ? filter[next] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int pair_idx = first + i * kThreads;
      if (pair_idx >= kPairs) break;
      const int pair = pair_idx % kStepPairs;
      const int step = pair_idx / kStepPairs % kSteps;
      const int channel = pair_idx / kStepPairs / kSteps;
      const int row = channel / 16 * 16 + channel % 4 / 2 * 8 + channel % 16 / 4 * 2 + channel % 2;
      // Lane t's four terms are words t and t + 4 of a step's 32 bytes.
      const int run = step % kChunkSteps * 2 + pair % 2;
      put((step / kChunkSteps * kN + row) * 128 + (run ^ row % 8) * 16 + pair / 2 * 4, pairs[i].x, pairs[i].y);
    }
  }
}

// Computes a warpgroup's sums of a convolution row. Fragments of a filter row are loaded while the previous row is
// multiplied.
template <int kN>
__device__ __forceinline__ void multiply_row(const LaneWindow<__half>& window, std::uint64_t filters,
                                             float (&sum)[kN / 2]) {
  std::uint32_t a[2][2][4];
  const auto load = [&](int row) {
#pragma unroll
    for (int step = 2 * row; step < 2 * row + 2 && step < kSteps; ++step) {
      uint2 pixels[2];
      window.load(step, pixels);
      a[row % 2][step % 2][0] = pixels[0].x, a[row % 2][step % 2][1] = pixels[1].x;
      a[row % 2][step % 2][2] = pixels[0].y, a[row % 2][step % 2][3] = pixels[1].y;
    }
  };
  load(0);
#pragma unroll
  for (int row = 0; row <= kFilter; ++row) {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 2 * row; step < 2 * row + 2 && step < kSteps; ++step) {
      ptx::wgmma_m64_a_registers<__half, kN>(sum, a[row % 2][step % 2], step_filters<kN>(filters, step), step > 0);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();  // the previous row is done: its fragments' registers are free
    ptx::warpgroup_fence_operand(a[(row + 1) % 2]);
    if (row < kFilter) load(row + 1);
  }
  ptx::wgmma_wait<0>();
  ptx::warpgroup_fence_operand(sum);
}

// Loads the biases of kN output channels from channel0 on, or zeros.
template <int kN, int kThreads>
__device__ __forceinline__ void fetch_biases(const Problem& p, const float* bias, int channel0, float* biases) {
  for (int i = threadIdx.x; i < kN; i += kThreads) biases[i] = bias && channel0 + i < p.k ? bias[channel0 + i] : 0.0f;
}

}  // namespace ladder::conv_stem

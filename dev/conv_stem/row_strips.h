// The published geometry (3 -> 96 channels, 11x11, stride 4, padding 2) without im2col, on wgmma: a row of output is a tile
// of up to 64 pixels x 96 channels, and a lane takes the fragments of its pixels straight from 11 rows of x.
//
// With NHWC a row of the filter meets 33 consecutive floats of x, and neighbouring pixels' begin 12 floats apart. In shared
// memory a row of x is FP16, two columns of padding in front: pixel q's 33 elements begin at byte 24 q, a multiple of 8, so
// that one 8-byte load gives a lane four terms of a fragment. The sum's terms are ordered for that: step 2i + h holds
// elements 16h.. of filter row i, of which lane t takes 4t..4t+3; the 33rd elements of all rows are step 22.
#pragma once

#include "core/device.h"
#include "dev/conv_stem/geometry.h"
#include "dev/ptx/wgmma.h"

namespace ladder::conv_stem {

constexpr int kOutChannels = 96;
constexpr int kMaxWidth = 256;   // of x
constexpr int kTilePixels = 64;  // of a row of output
constexpr int kGroupThreads = 128;
static_assert((kMaxWidth + 2 * kPad - kFilter) / kStride + 1 <= kTilePixels, "a row of output is one tile");

// Null, or why a version made of these parts cannot run the problem.
inline const char* row_strips_only(const Problem& p) {
  if (const char* const why = tf32_only(p)) return why;
  if (p.c != kChannels || p.k != kOutChannels) return "it is for 3 -> 96 channels";
  if (p.r != kFilter || p.stride != kStride || p.pad != kPad) return "it is for 11x11, stride 4, padding 2";
  if (p.w % 4 != 0) return "a row of x is no whole number of 16-byte pieces: w is not a multiple of 4";
  return p.w <= kMaxWidth ? nullptr : "a row of x has more than 256 pixels";
}

// The weights as wgmma's B: K-major rows of 64 terms under the 128-byte swizzle, 96 rows to each of six chunks.
struct StripWeights {
  static constexpr int kLastStep = 2 * kFilter;  // of the 33rd elements
  static constexpr int kRowBytes = 128;
  static constexpr int kChunkBytes = kOutChannels * kRowBytes;
  static constexpr int kBytes = (kLastStep / 4 + 1) * kChunkBytes;

  // Where element e of filter row i stands in an output channel's row.
  static __device__ __forceinline__ int byte_of(int i, int e) {
    const int quarter = e % 16 / 4;  // the lane of four that loads it
    const int term = e == kFilterRow - 1 ? i : e % 4 / 2 * 8 + quarter * 2 + e % 2;
    const int step = e == kFilterRow - 1 ? kLastStep : 2 * i + e / 16;
    return step / 4 * kChunkBytes + step % 4 * 32 + term * 2;
  }
  static __device__ __forceinline__ int swizzled(int channel, int byte) {
    return (channel * kRowBytes + byte) ^ (channel % 8 * 16);
  }

  // By all kWarps warps of a block, before a fence of stores (wgmma_fence_stores) and a barrier. A warp reads whole filters.
  template <int kWarps>
  static __device__ __forceinline__ void fill(unsigned char* weights, const float* w) {
    constexpr int kTerms = kFilter * kFilterRow;
    constexpr int kLoads = ceil_div(kTerms, 32);
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    int at[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) at[j] = byte_of((lane + 32 * j) / kFilterRow, (lane + 32 * j) % kFilterRow);
#pragma unroll 2
    for (int k = warp; k < kOutChannels; k += kWarps) {
      float value[kLoads];
#pragma unroll
      for (int j = 0; j < kLoads; ++j) value[j] = lane + 32 * j < kTerms ? w[k * kTerms + lane + 32 * j] : 0.0f;
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        if (lane + 32 * j < kTerms) {
          *reinterpret_cast<__half*>(weights + swizzled(k, at[j])) = __float2half_rn(value[j]);
        }
      }
      // The last step has terms of 11 rows, and zeros.
      if (lane >= kFilter && lane < 16) {
        *reinterpret_cast<__half*>(weights + swizzled(k, byte_of(lane, kFilterRow - 1))) = __float2half_rn(0.0f);
      }
    }
  }
};

// A warpgroup's 16 rows of x in shared memory, a ring of four batches. Batch b of an image is its rows 4b+5..4b+8: what row b
// of the output needs beyond row b - 1. Row b reads the batches b-2..b, while b+1 is written.
struct StripRows {
  static constexpr int kBatchRows = kStride;
  static constexpr int kRows = 4 * kBatchRows;
  static constexpr int kRowBytes = (kStride * kTilePixels + kFilter - kStride + 1) * kChannels * 2;  // 264 pixels
  static constexpr int kBytes = kRows * kRowBytes;
  static constexpr int kPieces = kBatchRows * kMaxWidth * kChannels / 4 / kGroupThreads;  // of a batch, a thread's
  static_assert(kRowBytes % 8 == 0, "8-byte loads");

  int offset[kPieces];  // of a piece of four elements, in a batch of the ring
  int row[kPieces];     // in the batch; past its end: none

  __device__ StripRows(const Problem& p, int thread) {
    const int pieces = p.w * kChannels / 4;
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      const int piece = thread + j * kGroupThreads;
      row[j] = piece / pieces;
      offset[j] = row[j] * kRowBytes + kPad * kChannels * 2 + piece % pieces * 8;
    }
  }

  // Issues the loads of batch b of the image; rows outside it are zeros.
  __device__ __forceinline__ void load(const Problem& p, const float* image, int b, int thread,
                                       float4 (&piece)[kPieces]) const {
    const int first = kBatchRows * b + kFilter - kPad - kStride;
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      const bool there = row[j] < kBatchRows && first + row[j] >= 0 && first + row[j] < p.h;
      const float* const from = image + first * p.w * kChannels + (thread + j * kGroupThreads) * 4;
      piece[j] = there ? *reinterpret_cast<const float4*>(from) : float4{0, 0, 0, 0};
    }
  }

  __device__ __forceinline__ void store(unsigned char* ring, int b, const float4 (&piece)[kPieces]) const {
    unsigned char* const batch = ring + b % 4 * kBatchRows * kRowBytes;
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      if (row[j] >= kBatchRows) continue;
      auto* const to = reinterpret_cast<__half2*>(batch + offset[j]);
      to[0] = __floats2half2_rn(piece[j].x, piece[j].y);
      to[1] = __floats2half2_rn(piece[j].z, piece[j].w);
    }
  }

  // Where filter row i of output row b begins: row 4b - 2 + i of x. Here and in store() b may be 4 too large, not negative.
  static __device__ __forceinline__ const unsigned char* filter_row(const unsigned char* ring, int b, int i) {
    return ring + (kBatchRows * b - (kFilter - kStride) + i) % kRows * kRowBytes;
  }
};

// A lane's fragments of A: steps 2i and 2i + 1, from filter row i. `row` is filter_row() + strip_lane().
__device__ __forceinline__ int strip_lane(int thread) {
  const int pixel = thread / 32 * 16 + thread % 32 / 4;
  return pixel * kStride * kChannels * 2 + thread % 4 * 8;
}

__device__ __forceinline__ void load_steps(std::uint32_t (&a)[2][4], const unsigned char* row) {
  constexpr int kEightPixels = 8 * kStride * kChannels * 2;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const uint2 low = *reinterpret_cast<const uint2*>(row + h * 32);
    const uint2 high = *reinterpret_cast<const uint2*>(row + h * 32 + kEightPixels);
    a[h][0] = low.x;
    a[h][1] = high.x;
    a[h][2] = low.y;
    a[h][3] = high.y;
  }
}

// The last step: lane t of four has the 33rd elements of filter rows 2t, 2t + 1, 2t + 8 and 2t + 9.
__device__ __forceinline__ void load_last_step(std::uint32_t (&a)[4], const unsigned char* ring, int b, int thread) {
  const int pixel_byte = strip_lane(thread) - thread % 4 * 8 + (kFilterRow - 1) * 2;
  const auto element = [&](int i, int pixel) -> std::uint32_t {
    if (i >= kFilter) return 0;
    const unsigned char* const at = StripRows::filter_row(ring, b, i) + pixel_byte + pixel * kStride * kChannels * 2;
    return *reinterpret_cast<const unsigned short*>(at);
  };
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int i = thread % 4 * 2 + j / 2 * 8;
    a[j] = element(i, j % 2 * 8) | element(i + 1, j % 2 * 8) << 16;
  }
}

// The sums of a row of output, without bias: filter rows' fragments are loaded while the row before multiplies. By a
// warpgroup, of which `thread` is one; wgmma's layout of sums.
__device__ __forceinline__ void multiply_strip(float (&sum)[kOutChannels / 2], const unsigned char* ring, int b,
                                               std::uint64_t weights, int thread) {
  std::uint32_t a[2][2][4];
  const int lane_byte = strip_lane(thread);
  load_steps(a[0], StripRows::filter_row(ring, b, 0) + lane_byte);
#pragma unroll
  for (int i = 0; i <= kFilter; ++i) {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 2 * i; step < 2 * i + 2 && step <= StripWeights::kLastStep; ++step) {
      const std::uint64_t at = ptx::wgmma_ahead(weights, step / 4 * StripWeights::kChunkBytes + step % 4 * 32);
      ptx::wgmma_m64_a_registers<__half, kOutChannels>(sum, a[i % 2][step % 2], at, step > 0);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();  // the row before is done, and its registers are free
    ptx::warpgroup_fence_operand(a[(i + 1) % 2]);
    if (i + 1 < kFilter) {
      load_steps(a[(i + 1) % 2], StripRows::filter_row(ring, b, i + 1) + lane_byte);
    } else if (i + 1 == kFilter) {
      load_last_step(a[(i + 1) % 2][0], ring, b, thread);
    }
  }
  ptx::wgmma_wait<0>();
  ptx::warpgroup_fence_operand(sum);
  ptx::warpgroup_fence_operand(a[0]);
  ptx::warpgroup_fence_operand(a[1]);
}

}  // namespace ladder::conv_stem

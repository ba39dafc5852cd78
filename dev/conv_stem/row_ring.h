// Ring of rows of x in shared memory, for a warpgroup that walks down a column tile, and a lane's loads from the ring
// as wgmma's operand A: no im2col.
//
// A tile is 56 convolution columns wide, 14 a warp. A warp's 16 rows of A are its 14 pixels and two more, those that pooling
// windows share with the next warp. Lane (g, t), g = lane / 4 and t = lane % 4, holds two neighbours: rows g and g + 8 are
// pixels 2m and 2m + 1 of the warp with m = 2 (g % 4) + g / 4. This order of m lets the lanes of a phase of a shared memory
// load meet all banks once. Sums may take their terms in any order, so a lane's four words of A are four neighbouring terms
// of each of its two pixels: one load each.
#pragma once

#include "dev/common/ffma_operand.h"
#include "dev/common/quads.h"
#include "dev/conv_stem/geometry.h"
#include "dev/ptx/opaque.h"

namespace ladder::conv_stem {

inline constexpr int kGroupThreads = 128;  // a warpgroup
inline constexpr int kTileCols = 56;       // of the convolution
inline constexpr int kWarpCols = 14;
inline constexpr int kTilePooled = kTileCols / 2;
inline constexpr int kWarpPooled = kWarpCols / 2;

// Convolution row p reads rows 4p - 2 to 4p + 8 of x. Group j is rows 4j - 2 to 4j + 1; the ring holds groups p to p + 3.
inline constexpr int kGroupRows = kStride;
inline constexpr int kRingGroups = 4;
// A tile's part of a row of x begins with the left padding. The margin before it aligns a pixel's window to four elements;
// loads of four floats of x then begin two elements early.
inline constexpr int kMargin = 4;
inline constexpr int kRowQuads = 180;
inline constexpr int kRowPitch = kMargin + kRowQuads * kQuad;
inline constexpr int kRingElements = kRingGroups * kGroupRows * kRowPitch;
static_assert(kMargin + kPixelStep * (kTileCols + 1) + kFilterRow <= kRowPitch - 2, "the last pixel's window");

// The terms of a sum, 16 a step of wgmma: two steps for each row of the filter, and one for the last float of all rows.
inline constexpr int kStepTerms = 16;
inline constexpr int kRowSteps = 2 * kFilter;
inline constexpr int kSteps = kRowSteps + 1;
static_assert(kFilterRow == 2 * kStepTerms + 1 && kFilter <= kStepTerms);

template <class T>
__device__ __forceinline__ T* ring_group(T* ring, int group) {
  return ring + (group & (kRingGroups - 1)) * kGroupRows * kRowPitch;
}

// A thread's part of a group of rows between x and the ring: loaded before a row is multiplied, stored after it.
template <bool kVectors>
struct RowGroup {
  static constexpr int kQuads = kGroupRows * kRowQuads;
  static constexpr int kRounds = ceil_div(kQuads, kGroupThreads);
  float4 fetched[kRounds];

  __device__ __forceinline__ void fetch(const Problem& p, const float* x, int image, int tile, int group) {
    // NOTE: opaque, so that addresses are computed anew for each row: kept, they would push sums out of registers.
    const int thread = ptx::opaque(static_cast<int>(threadIdx.x % kGroupThreads));
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int quad_idx = i * kGroupThreads + thread;
      const int row = kGroupRows * group - kPad + quad_idx / kRowQuads;
      const int element = tile * kTileCols * kPixelStep + (quad_idx % kRowQuads - 2) * kQuad;
      const bool inside = quad_idx < kQuads && row >= 0 && row < p.h && element >= 0;
      const float* const from = x + static_cast<long long>(image * p.h + row) * p.w * kChannels + element;
      fetched[i] = fetch_four<kVectors>(from, inside ? p.w * kChannels - element : 0);
    }
  }

  template <class T>
  __device__ __forceinline__ void put(T* ring, int group) const {
    const int thread = threadIdx.x % kGroupThreads;
    T* const rows = ring_group(ring, group);
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int quad_idx = i * kGroupThreads + thread;
      if (quad_idx >= kQuads) break;
      const float values[kQuad] = {fetched[i].x, fetched[i].y, fetched[i].z, fetched[i].w};
      const Quad<T> bits = pack_quad<T>(values);
      // NOTE: the first float of x lies six elements, the padding, after the margin: a quad is aligned to half its size.
      T* const to = rows + quad_idx / kRowQuads * kRowPitch + quad_idx % kRowQuads * kQuad + 2;
      if constexpr (sizeof(T) == 4) {
        *reinterpret_cast<uint2*>(to) = {bits.x, bits.y};
        *reinterpret_cast<uint2*>(to + 2) = {bits.z, bits.w};
      } else {
        *reinterpret_cast<unsigned*>(to) = bits.x;
        *reinterpret_cast<unsigned*>(to + 2) = bits.y;
      }
    }
  }
};

// Loads the groups that a walk's first row reads. Called by all threads of the warpgroup.
template <bool kVectors, class T>
__device__ __forceinline__ void fill_ring(const Problem& p, const float* x, int image, int tile, int row, T* ring) {
  RowGroup<kVectors> groups[kRingGroups - 1];
#pragma unroll
  for (int i = 0; i < kRingGroups - 1; ++i) groups[i].fetch(p, x, image, tile, row + i);
#pragma unroll
  for (int i = 0; i < kRingGroups - 1; ++i) groups[i].put(ring, row + i);
}

__device__ __forceinline__ int lane_pair() {
  const int g = threadIdx.x % 32 / 4;
  return 2 * (g % 4) + g / 4;
}

// Returns the lane that holds the next pair of pixels; for the last pair, which has no next, that of the first.
__device__ __forceinline__ int lane_of_next_pair() {
  const int next = (lane_pair() + 1) % 8;
  return (next / 2 + next % 2 * 4) * 4 + threadIdx.x % 4;
}

// Returns the column in the tile of the lane's first pixel.
__device__ __forceinline__ int lane_col() { return threadIdx.x % kGroupThreads / 32 * kWarpCols + 2 * lane_pair(); }

// Addresses of the terms that a lane reads of a convolution row's windows.
template <class T>
struct LaneWindow {
  const T* groups[kRingGroups - 1];  // the lane's terms of the first row of each group
  const T* last;                     // the last float of the windows' rows, from the lane's row 4t on
  int last_rows;                     // filter rows from 4t on

  __device__ __forceinline__ LaneWindow(const T* ring, int row) {
    const int t = threadIdx.x % 4;
    const int pixel = kMargin + kPixelStep * lane_col();
#pragma unroll
    for (int i = 0; i < kRingGroups - 1; ++i) groups[i] = ring_group(ring, row + i) + pixel + kQuad * t;
    last = ring_group(ring, row + t) + pixel + kFilterRow - 1;
    last_rows = kFilter - kGroupRows * t;
  }

  // Loads terms 4t to 4t + 3 of a step, of the lane's two pixels.
  __device__ __forceinline__ void load(int step, Quad<T> (&pixels)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (step < kRowSteps) {
        const int row = step / 2;
        const T* const from = groups[row / kGroupRows] + row % kGroupRows * kRowPitch + step % 2 * kStepTerms;
        pixels[i] = *reinterpret_cast<const Quad<T>*>(from + i * kPixelStep);
      } else {
        // NOTE: past the last row the pixel must be zero like the weight: zero times infinity is not.
        alignas(16) T terms[kQuad];
#pragma unroll
        for (int row = 0; row < kGroupRows; ++row) {
          terms[row] = row < last_rows ? last[row * kRowPitch + i * kPixelStep] : from_float<T>(0.0f);
        }
        pixels[i] = *reinterpret_cast<const Quad<T>*>(terms);
      }
    }
  }
};

}  // namespace ladder::conv_stem

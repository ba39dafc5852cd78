// conv3x3 seen as a matrix product: what the implicit-GEMM versions share.
//
//     Y[m][k] = sum over (r, s, c) of  A[m][(r, s, c)] * W[k][(r, s, c)]
//
// m counts pixels in NHWC order, so a tile of pixels may run over the ends of rows and images; A is x, gathered. W is w
// as it lies in memory: a row of 9c elements for each output channel.
#pragma once

#include "core/numeric.h"
#include "dev/conv3x3/conv3x3.h"

namespace ladder::conv3x3 {

// A row of A, computed once per pixel so that the K loop has no division: tap (r, s) of the pixel is found at element
// offset `base + tap_offset(r, s)` of x, and exists if bit 3r + s of `taps` is set.
struct PixelRow {
  int base;
  unsigned taps;
};

__device__ __forceinline__ PixelRow pixel_row(const Problem& p, int pixel) {
  if (pixel >= p.n * p.h * p.w) return {0, 0};
  const int col = pixel % p.w;
  const int row = pixel / p.w % p.h;
  unsigned rows = 0b010;  // bit r: tap row r lies inside the image
  if (row > 0) rows |= 0b001;
  if (row + 1 < p.h) rows |= 0b100;
  unsigned cols = 0b010;
  if (col > 0) cols |= 0b001;
  if (col + 1 < p.w) cols |= 0b100;
  const unsigned taps = ((rows & 1) ? cols : 0) | ((rows & 2) ? cols << 3 : 0) | ((rows & 4) ? cols << 6 : 0);
  return {pixel * p.c, taps};
}

// Elements from a pixel to its neighbour under tap rs = 3r + s.
__device__ __forceinline__ int tap_offset(const Problem& p, int rs) { return ((rs / 3 - 1) * p.w + rs % 3 - 1) * p.c; }

// The K loop's order: all nine taps of a chunk of channels, then the next chunk, so that a chunk's pixels are fetched
// while they are still in L2 (or L1) from the tap before.
struct KStep {
  int rs = 0;
  int c0 = 0;

  __device__ __forceinline__ void advance(int chunk_c) {
    if (++rs == 9) {
      rs = 0;
      c0 += chunk_c;
    }
  }
};

// Stores a tile of sums, fp32 in shared memory with `pitch` elements a row (a multiple of 4), into y: adds the bias,
// rounds to T. All kThreads threads of the block take part, after a barrier that follows the last write of `tile`.
template <int kThreads, int kBlockM, int kBlockN, class T>
__device__ __forceinline__ void store_tile(const Problem& p, const float* tile, int pitch, int m0, int k0,
                                           const float* bias, T* y) {
  constexpr int kVec = 16 / sizeof(T);
  const int pixels = p.n * p.h * p.w;
  for (int i = threadIdx.x; i < kBlockM * kBlockN / kVec; i += kThreads) {
    const int row = i / (kBlockN / kVec);
    const int col = i % (kBlockN / kVec) * kVec;
    const int m = m0 + row;
    const int k = k0 + col;
    if (m >= pixels || k >= p.k) continue;
    T* out = y + static_cast<long long>(m) * p.k + k;
    const float* sums = tile + row * pitch + col;
    if (p.k % kVec == 0) {
      alignas(16) T v[kVec];
#pragma unroll
      for (int j = 0; j < kVec; ++j) v[j] = from_float<T>(sums[j] + (bias ? bias[k + j] : 0.0f));
      *reinterpret_cast<uint4*>(out) = *reinterpret_cast<const uint4*>(v);
    } else {
      for (int j = 0; j < kVec && k + j < p.k; ++j) out[j] = from_float<T>(sums[j] + (bias ? bias[k + j] : 0.0f));
    }
  }
}

}  // namespace ladder::conv3x3

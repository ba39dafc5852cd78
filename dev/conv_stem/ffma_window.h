// A tile of convolution pixels x 96 output channels on the FMA pipe, for the published geometry: a step is a row of the
// filter, for which a block has the rows of x and of w in shared memory.
//
// Both lie there as in global memory, a pixel's window and a channel's filter row 33 consecutive floats, so that a 16-byte
// load is four terms of a sum: 8 of pixels and 12 of channels feed 384 multiply-adds.
#pragma once

#include "dev/conv_stem/geometry.h"
#include "dev/ptx/cp_async.h"
#include "dev/ptx/opaque.h"

namespace ladder::conv_stem {

inline constexpr int kFfmaThreads = 128;
inline constexpr int kFfmaPixels = 128;
inline constexpr int kFfmaChannels = 96;
inline constexpr int kThreadPixels = 8;
inline constexpr int kThreadChannels = 12;  // in three runs of four
inline constexpr int kChannelThreads = kFfmaChannels / kThreadChannels;
inline constexpr int kPixelThreads = kFfmaThreads / kChannelThreads;
static_assert(kPixelThreads * kThreadPixels == kFfmaPixels, "every sum has one thread");
inline constexpr int kFilterPitch = 36;  // floats: rows start on 16 bytes, and eight of them meet all banks once

// The first of a thread's four channels of run `run`.
__device__ __forceinline__ int thread_channel(int run) {
  return run * (4 * kChannelThreads) + threadIdx.x % kChannelThreads * 4;
}
__device__ __forceinline__ int thread_pixel(int i, int thread) { return thread / kChannelThreads + i * kPixelThreads; }
__device__ __forceinline__ int thread_pixel(int i) { return thread_pixel(i, static_cast<int>(threadIdx.x)); }

// kRows x kCols pixels of the convolution.
template <int kRows, int kCols>
struct FfmaWindow {
  static_assert(kRows * kCols <= kFfmaPixels);
  static constexpr int kWindow = kPixelStep * (kCols - 1) + kFilterRow;  // floats of a row of x
  static constexpr int kPitch = ceil_div(kWindow, 4) * 4;
  static constexpr int kStageFloats = kRows * kPitch + kFfmaChannels * kFilterPitch;
  static constexpr int kStages = 2;
  static constexpr int kWarps = kFfmaThreads / 32;

  // Copies row `filter_row` of the filters of output channels from channel0 on, and the rows of x that it meets for pixels
  // from (row0, col0) on of the convolution. A warp takes a row at a time.
  static __device__ __forceinline__ void copy(const Problem& p, const float* x, const float* w, int image, int row0,
                                              int col0, int channel0, int filter_row, float* stage) {
    // NOTE: opaque, so that addresses are computed anew for each row: kept, they would push sums out of registers.
    const int thread = ptx::opaque(static_cast<int>(threadIdx.x));
    const int warp = thread / 32;
    const int lane = thread % 32;
    const int first = kPixelStep * col0 - kPad * kChannels;
#pragma unroll
    for (int i = 0; i < ceil_div(kRows, kWarps); ++i) {
      const int tile_row = i * kWarps + warp;
      const int row = kStride * (row0 + tile_row) - kPad + filter_row;
      const float* const from = x + static_cast<long long>(image * p.h + row) * p.w * kChannels + first;
#pragma unroll
      for (int j = 0; j < ceil_div(kWindow, 32); ++j) {
        const int element = j * 32 + lane;
        if (tile_row >= kRows || element >= kWindow) break;
        const bool inside = row >= 0 && row < p.h && first + element >= 0 && first + element < p.w * kChannels;
        ptx::cp_async<4>(stage + tile_row * kPitch + element, inside ? from + element : x, inside);
      }
    }
    float* const filters = stage + kRows * kPitch;
    const auto copy_filter = [&](int channel, int term) {
      // Channel c is row c % 32 / 4 + 8 (c / 32 * 4 + c % 4): the rows of the eight threads that read side by side are too.
      const int to = channel % 32 / 4 + kChannelThreads * (channel / 32 * 4 + channel % 4);
      const bool exists = channel0 + channel < p.k;
      const float* const from = w + (channel0 + channel) * kFilterSize + filter_row * kFilterRow + term;
      ptx::cp_async<4>(filters + to * kFilterPitch + term, exists ? from : w, exists);
    };
#pragma unroll
    for (int i = 0; i < kFfmaChannels / kWarps; ++i) copy_filter(i * kWarps + warp, lane);
    if (thread < kFfmaChannels) copy_filter(thread, kFilterRow - 1);
  }

  // sum += the products of a stage.
  static __device__ __forceinline__ void multiply(float (&sum)[kThreadPixels][kThreadChannels], const float* stage) {
    const int thread = ptx::opaque(static_cast<int>(threadIdx.x));
    const float* windows[kThreadPixels];
#pragma unroll
    for (int i = 0; i < kThreadPixels; ++i) {
      // Pixels beyond the tile's last one repeat it.
      const int pixel_idx = thread_pixel(i, thread);
      const int pixel = pixel_idx < kRows * kCols ? pixel_idx : kRows * kCols - 1;
      windows[i] = stage + pixel / kCols * kPitch + pixel % kCols * kPixelStep;
    }
    const float* const filters = stage + kRows * kPitch + thread % kChannelThreads * kFilterPitch;
#pragma unroll 1
    for (int term = 0; term < kFilterRow - 1; term += 4) {
      float4 a[kThreadPixels];
#pragma unroll
      for (int i = 0; i < kThreadPixels; ++i) a[i] = *reinterpret_cast<const float4*>(windows[i] + term);
#pragma unroll
      for (int j = 0; j < kThreadChannels; ++j) {
        const float4 b = *reinterpret_cast<const float4*>(filters + j * kChannelThreads * kFilterPitch + term);
#pragma unroll
        for (int i = 0; i < kThreadPixels; ++i) sum[i][j] += a[i].x * b.x;
#pragma unroll
        for (int i = 0; i < kThreadPixels; ++i) sum[i][j] += a[i].y * b.y;
#pragma unroll
        for (int i = 0; i < kThreadPixels; ++i) sum[i][j] += a[i].z * b.z;
#pragma unroll
        for (int i = 0; i < kThreadPixels; ++i) sum[i][j] += a[i].w * b.w;
      }
    }
    float a[kThreadPixels];
#pragma unroll
    for (int i = 0; i < kThreadPixels; ++i) a[i] = windows[i][kFilterRow - 1];
#pragma unroll
    for (int j = 0; j < kThreadChannels; ++j) {
      const float b = filters[j * kChannelThreads * kFilterPitch + kFilterRow - 1];
#pragma unroll
      for (int i = 0; i < kThreadPixels; ++i) sum[i][j] += a[i] * b;
    }
  }

  // The sums of a tile: the next row of the filter is on its way while one is multiplied. After it, nobody reads `stages`.
  static __device__ __forceinline__ void convolve(const Problem& p, const float* x, const float* w, int image, int row0,
                                                  int col0, int channel0, float* stages,
                                                  float (&sum)[kThreadPixels][kThreadChannels]) {
    copy(p, x, w, image, row0, col0, channel0, 0, stages);
    ptx::cp_async_commit();
#pragma unroll 1
    for (int row = 0; row < kFilter; ++row) {
      ptx::cp_async_wait<0>();
      __syncthreads();  // the row is there for all, and the one before it is read
      if (row + 1 < kFilter) {
        copy(p, x, w, image, row0, col0, channel0, row + 1, stages + (row + 1) % kStages * kStageFloats);
        ptx::cp_async_commit();
      }
      multiply(sum, stages + row % kStages * kStageFloats);
    }
    __syncthreads();
  }
};

// The four biases from a channel on, or zeros.
__device__ __forceinline__ float4 four_biases(const float* bias, int channel) {
  return bias ? *reinterpret_cast<const float4*>(bias + channel) : float4{0, 0, 0, 0};
}

}  // namespace ladder::conv_stem

// Kernels that cut an image into tiles of channels and ranges of pixels, regardless of its groups: shared by v02 to v04
// of both passes. A block takes a tile, 8 vectors of 16 bytes wide, and a range of pixels. A thread takes one column of
// the tile, the channels of a vector, and every kRows-th pixel. If pixels do not begin at multiples of 16 bytes, a
// column is one element and a tile 32 of them.
#pragma once

#include "core/device.h"
#include "core/numeric.h"
#include "dev/common/vectors.h"
#include "dev/groupnorm/activation.h"
#include "dev/groupnorm/groupnorm.h"

namespace ladder::groupnorm {

inline constexpr int kColumnThreads = 256;

template <class T, int kWidth>  // kWidth: channels of a column
struct ChannelTile {
  static_assert(kWidth == 1 || kWidth == kVector<T>);
  static constexpr int kColumns = kWidth == 1 ? 32 : 8;  // 8 vectors are a line of 128 bytes
  static constexpr int kRows = kColumnThreads / kColumns;
  static constexpr int kChannels = kColumns * kWidth;
};

// Split of an image's pixels: part i has pixels [i * pixels_per_part, (i + 1) * pixels_per_part).
struct PixelSplit {
  int parts = 1;
  int pixels_per_part = 1;
};

template <class T, int kWidth>
__device__ __forceinline__ void load_column(const void* tensor, int offset, float (&values)[kWidth]) {
  const T* const from = static_cast<const T*>(tensor) + offset;
  if constexpr (kWidth == 1) {
    values[0] = to_float(*from);
  } else {
    unpack<T>(*reinterpret_cast<const uint4*>(from), values);
  }
}

template <class T, int kWidth>
__device__ __forceinline__ void store_column(void* tensor, int offset, const float (&values)[kWidth]) {
  T* const to = static_cast<T*>(tensor) + offset;
  if constexpr (kWidth == 1) {
    *to = from_float<T>(values[0]);
  } else {
    *reinterpret_cast<uint4*>(to) = pack<T>(values);
  }
}

// Position of a block and its thread. Tiles vary fastest over the grid, so that blocks that run together share a
// pixel's cache lines.
template <class T, int kWidth>
struct TileOffset {
  using Extent = ChannelTile<T, kWidth>;
  int image, part, first_channel, c0, row;

  __device__ __forceinline__ TileOffset(const Problem& p, const PixelSplit& split) {
    const int tiles = ceil_div(p.c, Extent::kChannels);
    first_channel = static_cast<int>(blockIdx.x) % tiles * Extent::kChannels;
    part = static_cast<int>(blockIdx.x) / tiles % split.parts;
    image = static_cast<int>(blockIdx.x) / tiles / split.parts;
    c0 = first_channel + static_cast<int>(threadIdx.x) % Extent::kColumns * kWidth;
    row = static_cast<int>(threadIdx.x) / Extent::kColumns;
  }
};

template <class T, int kWidth>
unsigned column_blocks(const Problem& p, const PixelSplit& split) {
  return static_cast<unsigned>(p.n) * split.parts * ceil_div(p.c, ChannelTile<T, kWidth>::kChannels);
}

// Adds up the pairs of the block's threads over the rows; a thread has a pair for each channel of its column. The order
// of the additions is fixed. Returns the tile's sums [kChannels], visible to all threads.
template <class T, int kWidth>
__device__ __forceinline__ const float2* sum_rows(const float2 (&pairs)[kWidth]) {
  using Extent = ChannelTile<T, kWidth>;
  LADDER_SHARED(float2, sums, [Extent::kRows][Extent::kChannels]);
  const int column = static_cast<int>(threadIdx.x) % Extent::kColumns * kWidth;
  __syncthreads();  // the sums of the last call have been read
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sums[threadIdx.x / Extent::kColumns][column + i] = pairs[i];
  for (int half = Extent::kRows / 2; half > 0; half /= 2) {
    __syncthreads();
    for (int i = threadIdx.x; i < half * Extent::kChannels; i += kColumnThreads) {
      float2& sum = sums[i / Extent::kChannels][i % Extent::kChannels];
      const float2 other = sums[i / Extent::kChannels + half][i % Extent::kChannels];
      sum.x += other.x, sum.y += other.y;
    }
  }
  __syncthreads();
  return sums[0];
}

// Calls f(T{}, width, Act{}); width.value is the number of channels of a column.
template <class F>
void dispatch_columns(const Problem& p, F&& f) {
  dispatch_types(p, [&](auto element, auto act) {
    if (whole_vectors(p)) {
      f(element, std::integral_constant<int, kVector<decltype(element)>>{}, act);
    } else {
      f(element, std::integral_constant<int, 1>{}, act);
    }
  });
}

}  // namespace ladder::groupnorm

// The backward pass by columns, in kernels that each read x and dy.
#pragma once

#include "dev/groupnorm/columns/columns.h"
#include "dev/groupnorm/gradient_terms.h"

namespace ladder::groupnorm {

// Stores the sums (dz, dz * xhat) of each channel of the block's tile over its pixels in row image * parts + part of
// `rows` [n * parts][c].
template <class T, int kWidth, class Act, class P = float>
__device__ __forceinline__ void sum_columns(const Problem& p, const Backward::Tensors& t, const PixelSplit& split,
                                            float2* rows) {
  using Extent = ChannelTile<T, kWidth>;
  const TileOffset<T, kWidth> tile(p, split);
  const bool inside = tile.c0 < p.c;

  float2 sums[kWidth] = {};
  if (inside) {
    Channel channels[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) channels[i] = channel_of<P>(p, t, tile.image, tile.c0 + i);
    const int end = min((tile.part + 1) * split.pixels_per_part, p.h * p.w);
#pragma unroll 4
    for (int pixel = tile.part * split.pixels_per_part + tile.row; pixel < end; pixel += Extent::kRows) {
      const int offset = (tile.image * p.h * p.w + pixel) * p.c + tile.c0;
      float x[kWidth];
      float dy[kWidth];
      load_column<T>(t.x, offset, x);
      load_column<T>(t.dy, offset, dy);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) add_terms<Act>(channels[i], x[i], dy[i], sums[i]);
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i].y *= channels[i].rstd;
  }

  const float2* const total = sum_rows<T>(sums);
  float2* const out = rows + static_cast<long long>(tile.image * split.parts + tile.part) * p.c + tile.first_channel;
  for (int i = threadIdx.x; i < Extent::kChannels && tile.first_channel + i < p.c; i += kColumnThreads) {
    out[i] = total[i];
  }
}

// Returns A and B of a group in every lane, from its channels' sums over all parts of the image. Called by a whole
// warp.
template <class P = float>
__device__ __forceinline__ float2 group_sum(const Problem& p, const Backward::Tensors& t, int parts, const float2* rows,
                                            int image, int group) {
  const int channels_per_group = p.c / p.g;
  float2 ab{0, 0};
  for (int i = threadIdx.x % 32; i < parts * channels_per_group; i += 32) {
    const int c = group * channels_per_group + i % channels_per_group;
    const float2 sums = rows[static_cast<long long>(image * parts + i / channels_per_group) * p.c + c];
    const float gamma = gamma_of<P>(t, c);
    ab.x = fmaf(gamma, sums.x, ab.x);
    ab.y = fmaf(gamma, sums.y, ab.y);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    ab.x += __shfl_xor_sync(~0u, ab.x, distance);
    ab.y += __shfl_xor_sync(~0u, ab.y, distance);
  }
  return ab;
}

// Writes dx of the block's tile and pixels; group_sums(group) returns the group's A and B.
template <class T, int kWidth, class Act, class P = float, class GroupSums>
__device__ __forceinline__ void write_columns(const Problem& p, const Backward::Tensors& t, const PixelSplit& split,
                                              const GroupSums& group_sums) {
  using Extent = ChannelTile<T, kWidth>;
  const TileOffset<T, kWidth> tile(p, split);
  if (tile.c0 >= p.c) return;

  const int channels_per_group = p.c / p.g;
  const float inverse_m = 1.0f / static_cast<float>(p.h * p.w * channels_per_group);
  Channel channels[kWidth];
  Correction corrections[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    channels[i] = channel_of<P>(p, t, tile.image, tile.c0 + i);
    corrections[i] = correction_of(channels[i].rstd, group_sums((tile.c0 + i) / channels_per_group), inverse_m);
  }
  const int end = min((tile.part + 1) * split.pixels_per_part, p.h * p.w);
#pragma unroll 2
  for (int pixel = tile.part * split.pixels_per_part + tile.row; pixel < end; pixel += Extent::kRows) {
    const int offset = (tile.image * p.h * p.w + pixel) * p.c + tile.c0;
    float x[kWidth];
    float dy[kWidth];
    float dx[kWidth];
    load_column<T>(t.x, offset, x);
    load_column<T>(t.dy, offset, dy);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) dx[i] = dx_of(channels[i], corrections[i], x[i], dy[i], Act{});
    store_column<T>(t.dx, offset, dx);
  }
}

}  // namespace ladder::groupnorm

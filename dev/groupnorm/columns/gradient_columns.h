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
  using Extent = Tile<T, kWidth>;
  const Place<T, kWidth> place(p, split);
  const bool inside = place.c0 < p.c;

  float2 sums[kWidth] = {};
  if (inside) {
    Channel channels[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) channels[i] = channel_of<P>(p, t, place.image, place.c0 + i);
    const int end = min((place.part + 1) * split.each, p.h * p.w);
#pragma unroll 4
    for (int pixel = place.part * split.each + place.row; pixel < end; pixel += Extent::kRows) {
      const int at = (place.image * p.h * p.w + pixel) * p.c + place.c0;
      float x[kWidth];
      float dy[kWidth];
      load_column<T>(t.x, at, x);
      load_column<T>(t.dy, at, dy);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) add_terms<Act>(channels[i], x[i], dy[i], sums[i]);
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i].y *= channels[i].rstd;
  }

  const float2* const total = sum_rows<T>(sums);
  float2* const out = rows + static_cast<long long>(place.image * split.parts + place.part) * p.c + place.tile_channel;
  for (int i = threadIdx.x; i < Extent::kChannels && place.tile_channel + i < p.c; i += kColumnThreads) {
    out[i] = total[i];
  }
}

// Returns A and B of a group in every lane, from its channels' sums over all parts of the image. Called by a whole
// warp.
template <class P = float>
__device__ __forceinline__ float2 group_sum(const Problem& p, const Backward::Tensors& t, int parts, const float2* rows,
                                            int image, int group) {
  const int width = p.c / p.g;
  float2 ab{0, 0};
  for (int i = threadIdx.x % 32; i < parts * width; i += 32) {
    const int c = group * width + i % width;
    const float2 sums = rows[static_cast<long long>(image * parts + i / width) * p.c + c];
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
  using Extent = Tile<T, kWidth>;
  const Place<T, kWidth> place(p, split);
  if (place.c0 >= p.c) return;

  const int width = p.c / p.g;
  const float inverse_m = 1.0f / static_cast<float>(p.h * p.w * width);
  Channel channels[kWidth];
  Correction corrections[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    channels[i] = channel_of<P>(p, t, place.image, place.c0 + i);
    corrections[i] = correction_of(channels[i].rstd, group_sums((place.c0 + i) / width), inverse_m);
  }
  const int end = min((place.part + 1) * split.each, p.h * p.w);
#pragma unroll 2
  for (int pixel = place.part * split.each + place.row; pixel < end; pixel += Extent::kRows) {
    const int at = (place.image * p.h * p.w + pixel) * p.c + place.c0;
    float x[kWidth];
    float dy[kWidth];
    float dx[kWidth];
    load_column<T>(t.x, at, x);
    load_column<T>(t.dy, at, dy);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) dx[i] = dx_of(channels[i], corrections[i], x[i], dy[i], Act{});
    store_column<T>(t.dx, at, dx);
  }
}

}  // namespace ladder::groupnorm

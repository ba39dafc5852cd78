// The forward pass in several kernels, of which the first and the last read x: what v02 to v04 share. The first leaves the
// moments of a channel over a part of its image's pixels: rows [image * parts + part][c] of (mean less the channel's first
// element, m2).
#pragma once

#include "dev/groupnorm/columns/columns.h"
#include "dev/groupnorm/statistics.h"

namespace ladder::groupnorm {

// Pixels of an image's part.
__device__ __forceinline__ int pixels_of(const Problem& p, const PixelSplit& split, int part) {
  return min(split.pixels_per_part, p.h * p.w - part * split.pixels_per_part);
}

// Calls f(values) for each of the thread's pixels, with the values of its column.
template <class T, int kWidth, class F>
__device__ __forceinline__ void for_each_pixel(const Problem& p, const PixelSplit& split,
                                               const TileOffset<T, kWidth>& tile, const void* x, const F& f) {
  if (tile.c0 >= p.c) return;
  const int begin = tile.part * split.pixels_per_part;
  const int end = begin + pixels_of(p, split, tile.part);
#pragma unroll 8
  for (int pixel = begin + tile.row; pixel < end; pixel += ChannelTile<T, kWidth>::kRows) {
    float values[kWidth];
    load_column<T>(x, (tile.image * p.h * p.w + pixel) * p.c + tile.c0, values);
    f(values);
  }
}

// The first elements of the thread's channels. Sums are of the differences from them.
template <class T, int kWidth>
__device__ __forceinline__ void load_pivots(const Problem& p, const TileOffset<T, kWidth>& tile, const void* x,
                                            float (&pivots)[kWidth]) {
  if (tile.c0 < p.c) load_column<T>(x, tile.image * p.h * p.w * p.c + tile.c0, pivots);
}

// Adds a pixel's values, about their pivots, to the sums of their channels: (x - pivot) and its square.
template <int kWidth>
__device__ __forceinline__ void add_pixel(const float (&values)[kWidth], const float (&pivots)[kWidth],
                                          float2 (&sums)[kWidth]) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float shifted = values[i] - pivots[i];
    sums[i].x += shifted;
    sums[i].y = fmaf(shifted, shifted, sums[i].y);
  }
}

// Writes the moments of the channels of the block's tile over its pixels, from the sums of the tile.
template <class T, int kWidth>
__device__ __forceinline__ void store_moments(const Problem& p, const PixelSplit& split,
                                              const TileOffset<T, kWidth>& tile, const float2* totals, float2* rows) {
  const auto count = static_cast<float>(pixels_of(p, split, tile.part));
  float2* const out = rows + static_cast<long long>(tile.image * split.parts + tile.part) * p.c + tile.first_channel;
  for (int i = threadIdx.x; i < ChannelTile<T, kWidth>::kChannels && tile.first_channel + i < p.c;
       i += kColumnThreads) {
    const Moments moments = moments_of(totals[i], count);
    out[i] = {moments.mean, moments.m2};
  }
}

// Merges the moments of a group's channels over all parts of its image, by a whole warp. Lane 0 returns the normaliser.
template <class T>
__device__ __forceinline__ Normaliser merge_group(const Problem& p, const void* x, const PixelSplit& split,
                                                  const float2* rows, int image, int group) {
  const int channels_per_group = p.c / p.g;
  const T* const first = static_cast<const T*>(x) + image * p.h * p.w * p.c + group * channels_per_group;
  const float pivot = to_float(*first);
  Moments local;
  for (int i = threadIdx.x % 32; i < split.parts * channels_per_group; i += 32) {
    const int part = i / channels_per_group;
    const int channel = i % channels_per_group;
    const float2 row =
        rows[static_cast<long long>(image * split.parts + part) * p.c + group * channels_per_group + channel];
    local = merge(local, {.count = static_cast<float>(pixels_of(p, split, part)),
                          .mean = row.x + (to_float(first[channel]) - pivot),
                          .m2 = row.y});
  }
  local = merge_warp(local);
  return {.pivot = pivot, .delta = local.mean, .rstd = rstd_of(p, local.m2 / local.count)};
}

// Writes y of the block's tile and pixels. normaliser_of(group) returns the Normaliser of a group.
template <class T, int kWidth, class Act, class P = float, class NormaliserOf>
__device__ __forceinline__ void write_columns(const Problem& p, const Forward::Tensors& t, const PixelSplit& split,
                                              const NormaliserOf& normaliser_of) {
  const TileOffset<T, kWidth> tile(p, split);
  if (tile.c0 >= p.c) return;
  Scaling channels[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    channels[i] = scaling_of<P>(normaliser_of((tile.c0 + i) / (p.c / p.g)), t, tile.c0 + i);
  }
  const int begin = tile.part * split.pixels_per_part;
  const int end = begin + pixels_of(p, split, tile.part);
#pragma unroll 4
  for (int pixel = begin + tile.row; pixel < end; pixel += ChannelTile<T, kWidth>::kRows) {
    const int offset = (tile.image * p.h * p.w + pixel) * p.c + tile.c0;
    float values[kWidth];
    load_column<T>(t.x, offset, values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[i] = y_of<Act>(channels[i], values[i]);
    store_column<T>(t.y, offset, values);
  }
}

inline constexpr int kMergeWarps = 8;  // of the groups kernel

// A warp merges a group, and writes its mean and rstd, and (delta, rstd) for the output kernel.
template <class T>
__global__ void __launch_bounds__(kMergeWarps * 32)
    groupnorm_forward_groups_kernel(Problem p, Forward::Tensors t, PixelSplit split, const float2* rows,
                                    float2* normalisers) {
  const int group = static_cast<int>(blockIdx.x) * kMergeWarps + static_cast<int>(threadIdx.x) / 32;
  if (group >= p.n * p.g) return;
  const Normaliser merged = merge_group<T>(p, t.x, split, rows, group / p.g, group % p.g);
  if (threadIdx.x % 32 > 0) return;
  t.mean[group] = merged.pivot + merged.delta;
  t.rstd[group] = merged.rstd;
  normalisers[group] = {merged.delta, merged.rstd};
}

template <class T, int kWidth, class Act, class P>
__global__ void __launch_bounds__(kColumnThreads, 3)
    groupnorm_forward_output_kernel(Problem p, Forward::Tensors t, PixelSplit split, const float2* normalisers) {
  const int channels_per_group = p.c / p.g;
  const int image = TileOffset<T, kWidth>(p, split).image;
  const T* const first = static_cast<const T*>(t.x) + image * p.h * p.w * p.c;
  write_columns<T, kWidth, Act, P>(p, t, split, [&](int group) {
    const float2 normaliser = normalisers[image * p.g + group];
    return Normaliser{
        .pivot = to_float(first[group * channels_per_group]), .delta = normaliser.x, .rstd = normaliser.y};
  });
}

// The second and third kernel of v02 and v03, whose first left `rows` for whole images.
template <class T, int kWidth, class Act, class P = float>
void launch_output(const Problem& p, const Forward::Tensors& t, const float2* rows, float2* normalisers,
                   Stream stream) {
  const PixelSplit full_image{.parts = 1, .pixels_per_part = p.pixels()};
  const auto group_blocks = static_cast<unsigned>(ceil_div(p.n * p.g, kMergeWarps));
  ladder::launch(groupnorm_forward_groups_kernel<T>, {.grid = group_blocks, .block = kMergeWarps * 32}, stream, p, t,
                 full_image, rows, normalisers);
  constexpr int kPixels = 256;
  const PixelSplit split{.parts = ceil_div(p.pixels(), kPixels), .pixels_per_part = kPixels};
  ladder::launch(groupnorm_forward_output_kernel<T, kWidth, Act, P>,
                 {.grid = column_blocks<T, kWidth>(p, split), .block = kColumnThreads}, stream, p, t, split,
                 normalisers);
}

}  // namespace ladder::groupnorm

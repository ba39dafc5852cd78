// The forward pass in kernels that each read x: what v02 to v04 share. Between the kernels are the moments of a channel over
// a part of its image's pixels, rows [image * parts + part][c] of (mean less the channel's first element, m2).
#pragma once

#include "dev/groupnorm/columns.h"
#include "dev/groupnorm/statistics.h"

namespace ladder::groupnorm {

// Pixels of an image's part.
__device__ __forceinline__ int pixels_of(const Problem& p, const PixelSplit& split, int part) {
  return min(split.each, p.h * p.w - part * split.each);
}

// Calls f(values) for what the thread's column has in its pixels.
template <class T, int kWidth, class F>
__device__ __forceinline__ void for_each_pixel(const Problem& p, const PixelSplit& split, const Place<T, kWidth>& place,
                                               const void* x, const F& f) {
  if (place.c0 >= p.c) return;
  const int begin = place.part * split.each;
  const int end = begin + pixels_of(p, split, place.part);
#pragma unroll 8
  for (int pixel = begin + place.row; pixel < end; pixel += Tile<T, kWidth>::kRows) {
    float values[kWidth];
    load_column<T>(x, (place.image * p.h * p.w + pixel) * p.c + place.c0, values);
    f(values);
  }
}

// The channels' first elements, about which their sums are.
template <class T, int kWidth>
__device__ __forceinline__ void load_pivots(const Problem& p, const Place<T, kWidth>& place, const void* x,
                                            float (&pivots)[kWidth]) {
  if (place.c0 < p.c) load_column<T>(x, place.image * p.h * p.w * p.c + place.c0, pivots);
}

// Writes the moments of every channel of the block's tile over its pixels, by one pass over x.
template <class T, int kWidth>
__device__ __forceinline__ void channel_moments(const Problem& p, const void* x, const PixelSplit& split,
                                                float2* rows) {
  using Extent = Tile<T, kWidth>;
  const Place<T, kWidth> place(p, split);
  float pivots[kWidth] = {};
  load_pivots<T>(p, place, x, pivots);

  float2 sums[kWidth] = {};
  for_each_pixel(p, split, place, x, [&](const float(&values)[kWidth]) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float apart = values[i] - pivots[i];
      sums[i].x += apart;
      sums[i].y = fmaf(apart, apart, sums[i].y);
    }
  });
  const float2* const totals = sum_rows<T>(sums);
  const auto count = static_cast<float>(pixels_of(p, split, place.part));
  float2* const out = rows + static_cast<long long>(place.image * split.parts + place.part) * p.c + place.tile_channel;
  for (int i = threadIdx.x; i < Extent::kChannels && place.tile_channel + i < p.c; i += kColumnThreads) {
    const Moments moments = moments_of(totals[i], count);
    out[i] = {moments.mean, moments.m2};
  }
}

// A group's normaliser out of the moments of its channels over all parts of its image, by a whole warp; lane 0 has it.
template <class T>
__device__ __forceinline__ Normaliser merge_group(const Problem& p, const void* x, const PixelSplit& split,
                                                  const float2* rows, int image, int group) {
  const int width = p.c / p.g;
  const T* const first = static_cast<const T*>(x) + image * p.h * p.w * p.c + group * width;
  const float pivot = to_float(*first);
  Moments own;
  for (int i = threadIdx.x % 32; i < split.parts * width; i += 32) {
    const int part = i / width;
    const int channel = i % width;
    const float2 row = rows[static_cast<long long>(image * split.parts + part) * p.c + group * width + channel];
    own = merge(own, {.count = static_cast<float>(pixels_of(p, split, part)),
                      .mean = row.x + (to_float(first[channel]) - pivot),
                      .m2 = row.y});
  }
  own = merge_warp(own);
  return {.pivot = pivot, .delta = own.mean, .rstd = rstd_of(own.m2 / own.count)};
}

// y of a block's tile and pixels; normaliser_of(group) is its group's.
template <class T, int kWidth, class Act, class NormaliserOf>
__device__ __forceinline__ void write_columns(const Problem& p, const Forward::Tensors& t, const PixelSplit& split,
                                              const NormaliserOf& normaliser_of) {
  const Place<T, kWidth> place(p, split);
  if (place.c0 >= p.c) return;
  Scaling channels[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    channels[i] = scaling_of(normaliser_of((place.c0 + i) / (p.c / p.g)), t, place.c0 + i);
  }
  const int begin = place.part * split.each;
  const int end = begin + pixels_of(p, split, place.part);
#pragma unroll 4
  for (int pixel = begin + place.row; pixel < end; pixel += Tile<T, kWidth>::kRows) {
    const int at = (place.image * p.h * p.w + pixel) * p.c + place.c0;
    float values[kWidth];
    load_column<T>(t.x, at, values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[i] = y_of<Act>(channels[i], values[i]);
    store_column<T>(t.y, at, values);
  }
}

inline constexpr int kMergeWarps = 8;  // of the groups kernel

// A warp a group: its mean and rstd, and (delta, rstd) for the output kernel.
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

template <class T, int kWidth, class Act>
__global__ void __launch_bounds__(kColumnThreads, 3)
    groupnorm_forward_output_kernel(Problem p, Forward::Tensors t, PixelSplit split, const float2* normalisers) {
  const int width = p.c / p.g;
  const int image = Place<T, kWidth>(p, split).image;
  const T* const first = static_cast<const T*>(t.x) + image * p.h * p.w * p.c;
  write_columns<T, kWidth, Act>(p, t, split, [&](int group) {
    const float2 normaliser = normalisers[image * p.g + group];
    return Normaliser{.pivot = to_float(first[group * width]), .delta = normaliser.x, .rstd = normaliser.y};
  });
}

// The second and third kernel of v02 and v03, whose first left `rows` for whole images.
template <class T, int kWidth, class Act>
void launch_output(const Problem& p, const Forward::Tensors& t, const float2* rows, float2* normalisers,
                   Stream stream) {
  const PixelSplit whole{.parts = 1, .each = p.pixels()};
  const auto group_blocks = static_cast<unsigned>(ceil_div(p.n * p.g, kMergeWarps));
  ladder::launch(groupnorm_forward_groups_kernel<T>, {.grid = group_blocks, .block = kMergeWarps * 32}, stream, p, t,
                 whole, rows, normalisers);
  constexpr int kPixels = 256;
  const PixelSplit split{.parts = ceil_div(p.pixels(), kPixels), .each = kPixels};
  ladder::launch(groupnorm_forward_output_kernel<T, kWidth, Act>,
                 {.grid = column_blocks<T, kWidth>(p, split), .block = kColumnThreads}, stream, p, t, split,
                 normalisers);
}

}  // namespace ladder::groupnorm

// The steps of a thread of a slab's block (slab.h), shared by v05 and v06: pivots, parameters, sums, normalised elements.
#pragma once

#include "dev/groupnorm/activation.h"
#include "dev/groupnorm/slab/slab_statistics.h"

namespace ladder::groupnorm {

// Groups of the spans of the thread's channels, in the chunk.
template <int kSpan>
struct SpanGroups {
  int channels_per_group;  // channels of a group
  int first;               // group of the first span
  int into;                // channels of that group before it

  __device__ __forceinline__ SpanGroups(const Problem& p, const SlabOffset& tile, int vector)
      : channels_per_group(p.c / p.g),
        first(tile.column * vector / channels_per_group),
        into(tile.column * vector - first * channels_per_group) {}

  // Returns a span's group, without a division: a span is at most a group.
  __device__ __forceinline__ int of(int span) const {
    int group = first;
    for (int i = 1, channel = into + kSpan; i <= span; ++i, channel += kSpan) {
      if (channel >= channels_per_group) channel -= channels_per_group, ++group;
    }
    return group;
  }
};

// Loads the first element of each span's group, the same for all blocks of a cluster. `chunk` points to the chunk's first channel
// of the image's first pixel.
template <class T, int kSpan>
__device__ __forceinline__ void load_pivots(const SpanGroups<kSpan>& groups, const T* chunk,
                                            float (&pivots)[kVector<T> / kSpan]) {
#pragma unroll
  for (int i = 0; i < kVector<T> / kSpan; ++i) pivots[i] = to_float(chunk[groups.of(i) * groups.channels_per_group]);
}

// Loads gamma into scale and beta into shift, of channels from `channel` on.
template <int kVec>
__device__ __forceinline__ void load_parameters(const Forward::Tensors& t, int channel, float (&scale)[kVec],
                                                float (&shift)[kVec]) {
#pragma unroll
  for (int i = 0; i < kVec; i += 4) {
    const float4 gamma = t.gamma ? *reinterpret_cast<const float4*>(t.gamma + channel + i) : float4{1, 1, 1, 1};
    const float4 beta = t.beta ? *reinterpret_cast<const float4*>(t.beta + channel + i) : float4{0, 0, 0, 0};
    scale[i] = gamma.x, scale[i + 1] = gamma.y, scale[i + 2] = gamma.z, scale[i + 3] = gamma.w;
    shift[i] = beta.x, shift[i + 1] = beta.y, shift[i + 2] = beta.z, shift[i + 3] = beta.w;
  }
}

// Adds a vector's elements, about their pivots, to the sums of their spans.
template <class T, int kSpan>
__device__ __forceinline__ void add_vector(const uint4& bits, const float (&pivots)[kVector<T> / kSpan],
                                           float2 (&sums)[kVector<T> / kSpan]) {
  float values[kVector<T>];
  unpack<T>(bits, values);
#pragma unroll
  for (int i = 0; i < kVector<T>; ++i) {
    const float shifted = values[i] - pivots[i / kSpan];
    sums[i / kSpan].x += shifted;
    sums[i / kSpan].y = fmaf(shifted, shifted, sums[i / kSpan].y);
  }
}

// Turns gamma and beta into scale and shift of x - pivot: y = act((x - pivot) * scale + shift).
template <int kSpan, int kVec>
__device__ __forceinline__ void apply_statistics(const float2* statistics, const SpanGroups<kSpan>& groups,
                                                 float (&scale)[kVec], float (&shift)[kVec]) {
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    const float2 group = statistics[groups.of(i / kSpan)];
    scale[i] *= group.y;
    shift[i] = fmaf(-group.x, scale[i], shift[i]);
  }
}

template <class T, int kSpan, class Act>
__device__ __forceinline__ uint4 normalised(const uint4& bits, const float (&pivots)[kVector<T> / kSpan],
                                            const float (&scale)[kVector<T>], const float (&shift)[kVector<T>]) {
  float values[kVector<T>];
  unpack<T>(bits, values);
#pragma unroll
  for (int i = 0; i < kVector<T>; ++i) {
    values[i] = Act::value(fmaf(values[i] - pivots[i / kSpan], scale[i], shift[i]));
  }
  return pack<T>(values);
}

// Writes mean and rstd of the chunk's groups. One block of a cluster does it.
template <class T>
__device__ __forceinline__ void store_statistics(const Problem& p, const Forward::Tensors& t, const SlabPlan& plan,
                                                 const SlabOffset& tile, const T* chunk, const float2* statistics) {
  if (tile.cta_rank > 0) return;
  const int channels_per_group = p.c / p.g;
  for (int i = threadIdx.x; i < slab_groups(p, plan); i += plan.threads()) {
    const int group = tile.image * p.g + tile.chunk_channel / channels_per_group + i;
    t.mean[group] = to_float(chunk[i * channels_per_group]) + statistics[i].x;
    t.rstd[group] = statistics[i].y;
  }
}

// Calls f(T{}, span, Act{}), span.value being kSpan.
template <class F>
void dispatch_slab(const Problem& p, F&& f) {
  dispatch_types(p, [&](auto element, auto act) {
    if (p.channels_per_group() % 2 == 0) {
      f(element, std::integral_constant<int, 2>{}, act);
    } else {
      f(element, std::integral_constant<int, 1>{}, act);
    }
  });
}

}  // namespace ladder::groupnorm

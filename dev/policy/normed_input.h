// The input of a stage, made by every block for itself out of the previous stage's convolution, in two halves. What no block is
// still at work on, parameters, residuals and joined channels, is loaded before the wait for the grid; then each thread loads
// its part of the convolution at once, and keeps it in registers until the input is made.
#pragma once

#include "dev/common/activation.h"
#include "dev/common/lane_sums.h"
#include "dev/common/moments.h"
#include "dev/common/quads.h"
#include "dev/policy/pass.h"

namespace ladder::policy {

inline constexpr int kMostHeld = 4;  // positions that a thread has

// A bit for each stage.
struct StageSets {
  std::uint64_t vectors = 0;  // rows of its weights are whole vectors of sixteen bytes
  std::uint64_t quads = 0;    // its values are made four channels at a time
  std::uint64_t kept = 0;     // a later stage reads its values
  std::uint64_t runs = 0;     // channels joined to its input are copied sixteen bytes at a time

  static __host__ __device__ constexpr bool has(std::uint64_t set, int at) { return (set >> at & 1) != 0; }
};

// Which threads of `kWarps` warps make what of a stage's values: the same number of warps a group, in which a thread has a channel,
// or four, at every at_a_time-th position.
struct Part {
  int group;
  int channel;
  int first_row;
  int at_a_time;
  bool any;

  __host__ __device__ static constexpr int warps_a_group(const Stage& stage, int warps) {
    return warps / (stage.groups > 0 ? stage.groups : 1);
  }

  // Of the `worker`-th thread; each makes `width` channels.
  __device__ __forceinline__ Part(const Stage& stage, int warps, int width, int worker) {
    const int threads = 32 * warps_a_group(stage, warps);
    const int groups = max(stage.groups, 1);
    const int of_group = stage.k / groups;
    group = worker / threads;
    at_a_time = threads / (of_group / width);
    first_row = worker % threads / (of_group / width);
    channel = group * of_group + worker % threads % (of_group / width) * width;
    any = worker >= 0 && group < groups && first_row < at_a_time;
  }
};

// One channel, or four neighbours.
template <int kWidth, class T>
__device__ __forceinline__ void load(const T* from, float (&to)[kWidth]) {
  if constexpr (kWidth == kQuad) {
    unpack_quad<T>(*reinterpret_cast<const Quad<T>*>(from), to);
  } else {
    to[0] = to_float(*from);
  }
}
template <int kWidth, class T>
__device__ __forceinline__ void store(T* to, const float (&from)[kWidth]) {
  if constexpr (kWidth == kQuad) {
    *reinterpret_cast<Quad<T>*>(to) = pack_quad<T>(from);
  } else {
    *to = from_float<T>(from[0]);
  }
}

// Of the input of stage `at`, whose parts are stored.
template <int kWidth, class T>
__device__ __forceinline__ void load_input(const Pass<T>& pass, int at, int sample, int row, int channel,
                                           float (&to)[kWidth]) {
  const Stage& stage = pass.network.stages[at];
  const int own = stage.c - stage.joined;
  if (channel >= own) {
    load(pass.of(pass.buffers.values, stage.rest, sample) + row * stage.joined + channel - own, to);
  } else if (stage.source != kSample) {
    load(pass.of(pass.buffers.values, stage.source, sample) + row * own + channel, to);
  } else {
    load(pass.t.x + (sample * stage.l + row) * own + channel, to);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) to[j] = to_float(from_float<T>(to[j]));
  }
}

// What needs no wait: zeros for channels up to `channels`, those of the sample, and joined ones.
template <int kThreads, class T>
__device__ __forceinline__ void make_other_channels(const Pass<T>& pass, const StageSets& sets, int at, int sample,
                                                    int worker, T* input, int pitch, int channels) {
  if (worker < 0) return;
  const Stage& stage = pass.network.stages[at];
  const int own = stage.c - stage.joined;
  const int first = stage.source == kSample ? 0 : own;
  if (stage.c < channels || first == 0 || (stage.joined > 0 && !StageSets::has(sets.runs, at))) {
    const int each = channels - first;
    for (int i = worker; i < stage.l * each; i += kThreads) {
      const int row = i / each;
      const int channel = first + i % each;
      const float value = channel < stage.c ? pass.input_at(at, sample, row, channel) : 0.0f;
      input[row * pitch + channel] = from_float<T>(value);
    }
  } else if (stage.joined > 0) {
    const int runs = stage.joined / kVector<T>;  // of a row
    const T* const from = pass.of(pass.buffers.values, stage.rest, sample);
    for (int i = worker; i < stage.l * runs; i += kThreads) {
      *reinterpret_cast<uint4*>(input + i / runs * pitch + own + i % runs * kVector<T>) =
          *reinterpret_cast<const uint4*>(from + i * kVector<T>);
    }
  }
}

// The channels that stage `at` - 1 computes, in `input` at `pitch` elements a position. All threads call it; those with worker < 0
// have no part. `wait` returns once all blocks have stored their convolutions.
template <int kWarps, int kWidth, class T, class Wait>
__device__ __forceinline__ void make_own_channels(const Pass<T>& pass, const StageSets& sets, int at, int sample,
                                                  int worker, T* input, int pitch, float2* warp_sums,
                                                  const Wait& wait) {
  const int source = at - 1;
  const Stage& before = pass.network.stages[source];
  const int length = before.out_l();
  const int k = before.k;
  const Part part(before, kWarps, kWidth, worker);
  const bool any = part.any;
  const auto row = [&](int i) { return part.first_row + i * part.at_a_time; };
  const float* const vectors = pass.t.vectors;

  float bias[kWidth] = {}, gamma[kWidth] = {}, beta[kWidth] = {}, scale[kWidth];
  float added[kMostHeld][kWidth] = {};  // the residual, and the shift
#pragma unroll
  for (int j = 0; j < kWidth; ++j) scale[j] = 1.0f;
  if (any) load(vectors + before.bias + part.channel, bias);
  if (any && before.groups > 0) {
    load(vectors + before.gamma() + part.channel, gamma);
    load(vectors + before.beta() + part.channel, beta);
    if (before.residual == Residual::convolution) {
      const float* const from = pass.of(pass.buffers.residual, source, sample) + part.channel;
      float residual_bias[kWidth];
      load(vectors + before.residual_bias + part.channel, residual_bias);
#pragma unroll
      for (int i = 0; i < kMostHeld; ++i) {
        if (row(i) < length) load(from + row(i) * k, added[i]);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) added[i][j] += residual_bias[j];
      }
    } else if (before.residual == Residual::identity) {
#pragma unroll
      for (int i = 0; i < kMostHeld; ++i) {
        if (row(i) < length) load_input(pass, source - 1, sample, row(i), part.channel, added[i]);
      }
    }
    if (before.film != kNone) {
      const std::int64_t film = before.film + part.channel;
      const float* const of_step = pass.t.film_table + pass.step * std::int64_t{pass.network.film_row} + film;
      const float* const of_sample = pass.t.film + sample * std::int64_t{pass.network.film_row} + film;
      float scale_of_sample[kWidth], shift[kWidth], shift_of_sample[kWidth];
      load(of_step, scale);
      load(of_sample, scale_of_sample);
      load(of_step + k, shift);
      load(of_sample + k, shift_of_sample);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        scale[j] += scale_of_sample[j];
#pragma unroll
        for (int i = 0; i < kMostHeld; ++i) added[i][j] += shift[j] + shift_of_sample[j];
      }
    }
  }

  wait();
  const float* const h = pass.of(pass.buffers.h, source, sample);
  float v[kMostHeld][kWidth] = {};
#pragma unroll
  for (int i = 0; i < kMostHeld; ++i) {
    if (any && row(i) < length) load(h + row(i) * k + part.channel, v[i]);
  }
  if (before.groups > 0) {
    const int of_group = k / before.groups;
    const float pivot = any ? h[part.group * of_group] : 0.0f;
    float2 sums = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < kMostHeld; ++i) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        v[i][j] += bias[j] - pivot;
        if (!any || row(i) >= length) continue;
        sums.x += v[i][j];
        sums.y = fmaf(v[i][j], v[i][j], sums.y);
      }
    }
    sums = {sum_over_lanes(sums.x), sum_over_lanes(sums.y)};
    if (worker >= 0 && worker % 32 == 0) warp_sums[worker / 32] = sums;
    __syncthreads();
    const int warps = Part::warps_a_group(before, kWarps);
    float2 all = {0.0f, 0.0f};
    for (int i = 0; any && i < warps; ++i) {
      all.x += warp_sums[part.group * warps + i].x;
      all.y += warp_sums[part.group * warps + i].y;
    }
    const Moments moments = moments_of(all, static_cast<float>(of_group * length));
    const float rstd = rsqrtf(moments.m2 / moments.count + conv1d::kEpsilon);
#pragma unroll
    for (int i = 0; i < kMostHeld; ++i) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float normed = fmaf(gamma[j] * rstd, v[i][j] - moments.mean, beta[j]);
        v[i][j] = fmaf(scale[j], Mish::value(normed), added[i][j]);
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < kMostHeld; ++i) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) v[i][j] += bias[j];
    }
  }

  T* const value = pass.of(pass.buffers.values, source, sample) + part.channel;
#pragma unroll
  for (int i = 0; i < kMostHeld; ++i) {
    if (!any || row(i) >= length) break;
    store(input + row(i) * pitch + part.channel, v[i]);
    if (!StageSets::has(sets.kept, source)) continue;
    const bool is_mine = static_cast<unsigned>(i * kWarps + worker / 32) % gridDim.x == blockIdx.x;
    if (is_mine) store(value + row(i) * k, v[i]);
  }
}

}  // namespace ladder::policy

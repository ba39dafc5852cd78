// Input of a stage, made by every block for itself from the previous stage's convolution, in two halves. Parameters,
// residuals and joined channels, at which no block is still at work, are loaded before the wait for the grid. After it
// each thread loads its part of the convolution at once, and keeps it in registers until the input is made.
#pragma once

#include "dev/common/activation.h"
#include "dev/common/lane_sums.h"
#include "dev/common/quads.h"
#include "dev/policy/pass.h"
#include "dev/ptx/maximum.h"

namespace ladder::policy {

inline constexpr int kMaxThreadPositions = 4;  // positions of a thread
inline constexpr int kSmallThreadPositions = 2;

// Partition of a stage's values over the threads of some warps, the same number of warps for each group. A thread has a
// column, one channel or four adjacent ones, at every at_a_time-th position.
struct WorkSplit {
  std::uint32_t column_inverse;  // 2^20 / columns, rounded up: a thread's index is divided by a multiplication
  std::uint16_t warp_inverse;    // 2^12 / warps
  std::uint16_t columns;         // of a group
  std::uint16_t at_a_time;
  std::uint16_t rows;   // positions
  float inverse_count;  // 1 / values of a group
  std::uint8_t warps;   // of a group
  bool quads;           // a column is four channels
  bool kept;            // a later stage reads the values
  bool runs;            // channels joined to the stage's input are copied sixteen bytes at a time

  static WorkSplit of(const Stage& stage, int warps, bool quads) {
    const int groups = stage.groups > 0 ? stage.groups : 1;
    WorkSplit s{.rows = static_cast<std::uint16_t>(stage.out_l()),
                .inverse_count = 1.0f / static_cast<float>(stage.k / groups * stage.out_l()),
                .warps = static_cast<std::uint8_t>(warps / groups),
                .quads = quads};
    if (s.warps == 0) return s;  // more groups than warps
    s.columns = static_cast<std::uint16_t>(stage.k / groups / (quads ? kQuad : 1));
    s.at_a_time = static_cast<std::uint16_t>(32 * s.warps / s.columns);
    s.column_inverse = static_cast<std::uint32_t>(ceil_div(1 << 20, static_cast<int>(s.columns)));
    s.warp_inverse = static_cast<std::uint16_t>(ceil_div(1 << 12, static_cast<int>(s.warps)));
    return s;
  }
  // Returns true if a thread has at most `most` positions.
  __host__ __device__ bool holds(int most) const { return at_a_time > 0 && most * at_a_time >= rows; }
};

// Load one channel, or four adjacent ones.
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

// Mish of one value or four. Four share a reciprocal, as the unit that makes it is slower than multiplications.
__device__ __forceinline__ void apply_mish(float (&z)[1]) { z[0] = Mish::value(z[0]); }
__device__ __forceinline__ void apply_mish(float (&z)[kQuad]) {
  constexpr float kSaturated = 10.0f;  // beyond it the quotient is 1 in fp32, and the product of four still a number
  float q[kQuad];
#pragma unroll
  for (int j = 0; j < kQuad; ++j) {
    const float e = exponential(fminf(z[j], kSaturated));
    q[j] = e * (e + 2.0f);
    z[j] *= q[j];
    q[j] += 2.0f;
  }
  const float low = q[0] * q[1];
  const float high = q[2] * q[3];
  const float inverse = ptx::reciprocal_approximate(low * high);
  const float of_low = inverse * high;
  const float of_high = inverse * low;
  z[0] *= of_low * q[1];
  z[1] *= of_low * q[0];
  z[2] *= of_high * q[3];
  z[3] *= of_high * q[2];
}

// Store the channels that need no wait: those of the sample or the joined ones, then zeros up to `channels`.
template <int kThreads, class T>
__device__ __forceinline__ void load_skip_channels(const Pass<T>& pass, bool runs_of_16_bytes, int stage_idx,
                                                   int sample, int worker, T* input, int pitch, int channels) {
  const Stage& stage = pass.network.stages[stage_idx];
  const int first = stage.source == kSample ? 0 : stage.c - stage.joined;
  if (worker < 0 || first == channels) return;
  if (runs_of_16_bytes && stage.c == channels) {
    const int runs = stage.joined / kVector<T>;  // of a row
    const T* const from = pass.of(pass.buffers.values, stage.joined_stage, sample);
    for (int i = worker; i < stage.l * runs; i += kThreads) {
      *reinterpret_cast<uint4*>(input + i / runs * pitch + first + i % runs * kVector<T>) =
          *reinterpret_cast<const uint4*>(from + i * kVector<T>);
    }
    return;
  }
  const int row_channels = channels - first;
  for (int i = worker; i < stage.l * row_channels; i += kThreads) {
    const int row = i / row_channels;
    const int channel = first + i % row_channels;
    const float value = channel < stage.c ? pass.input_at(stage_idx, sample, row, channel) : 0.0f;
    input[row * pitch + channel] = from_float<T>(value);
  }
}

// Compute the channels that come from stage `stage_idx` - 1 into `input`, at `pitch` elements a position. All threads call;
// those with worker < 0 have no part. `wait` returns once all blocks have stored their convolutions.
template <int kWarps, int kWidth, int kPositions, class T, class Wait>
__device__ __forceinline__ void normalize_previous_stage(const Pass<T>& pass, const WorkSplit& work_split,
                                                         int stage_idx, int sample, int worker, T* input, int pitch,
                                                         float2* warp_sums, const Wait& wait) {
  const int source = stage_idx - 1;
  const Stage& before = pass.network.stages[source];
  const int k = before.k;
  const int group = static_cast<int>(worker / 32 * work_split.warp_inverse >> 12);
  const unsigned thread = worker - group * work_split.warps * 32;
  const int first_row = static_cast<int>(thread * work_split.column_inverse >> 20);
  const int column = static_cast<int>(thread) - first_row * work_split.columns;
  const int channel = (group * work_split.columns + column) * kWidth;
  int num_positions = 0;
  if (worker >= 0 && channel < k && first_row < work_split.at_a_time) {
#pragma unroll
    for (int i = 0; i < kPositions; ++i)
      num_positions += first_row + i * work_split.at_a_time < work_split.rows ? 1 : 0;
  }
  const int step = work_split.at_a_time * k;  // between a thread's positions
  const int offset = first_row * k + channel;
  const float* const vectors = pass.t.vectors + (before.bias + channel);

  float bias[kWidth] = {}, gamma[kWidth] = {}, beta[kWidth] = {}, scale[kWidth];
  float added[kPositions][kWidth] = {};  // the residual, and the shift
#pragma unroll
  for (int j = 0; j < kWidth; ++j) scale[j] = 1.0f;
  if (num_positions > 0) load(vectors, bias);
  if (num_positions > 0 && before.groups > 0) {
    load(vectors + k, gamma);
    load(vectors + 2 * k, beta);
    if (before.residual == Residual::convolution) {
      const float* const from = pass.of(pass.buffers.residual, source, sample, offset);
      float residual_bias[kWidth];
      load(pass.t.vectors + (before.residual_bias + channel), residual_bias);
#pragma unroll
      for (int i = 0; i < kPositions; ++i) {
        if (i >= num_positions) break;
        load(from + i * step, added[i]);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) added[i][j] += residual_bias[j];
      }
    } else if (before.residual == Residual::identity) {
      const Stage& first = pass.network.stages[source - 1];
      const int split = first.c - first.joined;
      const bool is_joined = channel >= split;
      const int row_elements = is_joined ? first.joined : split;
      const int from = first_row * row_elements + channel - (is_joined ? split : 0);
      const T* const values =
          pass.of(pass.buffers.values, is_joined ? first.joined_stage : max(first.source, 0), sample, from);
      const bool is_sample = !is_joined && first.source == kSample;
#pragma unroll
      for (int i = 0; i < kPositions; ++i) {
        if (i >= num_positions) break;
        if (is_sample) {
          load(pass.t.x + (sample * first.l * split + from + i * work_split.at_a_time * row_elements), added[i]);
#pragma unroll
          for (int j = 0; j < kWidth; ++j) added[i][j] = to_float(from_float<T>(added[i][j]));
        } else {
          load(values + i * work_split.at_a_time * row_elements, added[i]);
        }
      }
    }
    if (before.film != kNone) {
      const int film = before.film + channel;
      const float* const of_step = pass.t.film_table + (pass.step * pass.network.film_row + film);
      const float* const of_sample = pass.t.film + (sample * pass.network.film_row + film);
      float scale_of_sample[kWidth], shift[kWidth], shift_of_sample[kWidth];
      load(of_step, scale);
      load(of_sample, scale_of_sample);
      load(of_step + k, shift);
      load(of_sample + k, shift_of_sample);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        scale[j] += scale_of_sample[j];
#pragma unroll
        for (int i = 0; i < kPositions; ++i) added[i][j] += shift[j] + shift_of_sample[j];
      }
    }
  }
  const float* const h = pass.of(pass.buffers.h, source, sample, offset);
  const float* const h_of_group = pass.of(pass.buffers.h, source, sample, channel - column * kWidth);

  wait();
  float v[kPositions][kWidth] = {};
#pragma unroll
  for (int i = 0; i < kPositions; ++i) {
    if (i < num_positions) load(h + i * step, v[i]);
  }
  if (before.groups > 0) {
    const float pivot = num_positions > 0 ? *h_of_group : 0.0f;
    float2 sums = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < kPositions; ++i) {
      if (i >= num_positions) break;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        v[i][j] += bias[j] - pivot;
        sums.x += v[i][j];
        sums.y = fmaf(v[i][j], v[i][j], sums.y);
      }
    }
    sums = {sum_over_lanes(sums.x), sum_over_lanes(sums.y)};
    if (worker >= 0 && worker % 32 == 0) warp_sums[worker / 32] = sums;
    __syncthreads();
    if (num_positions == 0) return;
    float2 all = {0.0f, 0.0f};
#pragma unroll 1
    for (int i = 0; i < work_split.warps; ++i) {
      const float2 part = warp_sums[group * work_split.warps + i];
      all = {all.x + part.x, all.y + part.y};
    }
    const float mean = all.x * work_split.inverse_count;  // less the pivot, like v
    const float variance = ptx::maximum(fmaf(-all.x, mean, all.y), 0.0f) * work_split.inverse_count;
    const float rstd = rsqrtf(variance + conv1d::kEpsilon);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) gamma[j] *= rstd;
#pragma unroll
    for (int i = 0; i < kPositions; ++i) {
      if (i >= num_positions) break;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) v[i][j] = fmaf(gamma[j], v[i][j] - mean, beta[j]);
      apply_mish(v[i]);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) v[i][j] = fmaf(scale[j], v[i][j], added[i][j]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPositions; ++i) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) v[i][j] += bias[j];
    }
  }

  T* const value = pass.of(pass.buffers.values, source, sample, offset);
  T* const to = input + first_row * pitch + channel;
#pragma unroll
  for (int i = 0; i < kPositions; ++i) {
    if (i >= num_positions) break;
    store(to + i * work_split.at_a_time * pitch, v[i]);
    const unsigned block = i * kWarps + worker / 32;  // stores this part
    if (work_split.kept && min(block, gridDim.x - 1) == blockIdx.x) store(value + i * step, v[i]);
  }
}

}  // namespace ladder::policy

// Input of a stage, made in shared memory by every block for itself from the previous stage's convolution: the consumer
// normalises, so that no stage needs a sum over the grid.
#pragma once

#include "dev/common/activation.h"
#include "dev/common/moments.h"
#include "dev/policy/pass.h"
#include "dev/policy/values.h"

namespace ladder::policy {

// Sizes in shared memory: elements of the largest input, elements of the largest h that an input is made of, and
// groups, with two numbers each.
struct InputSizes {
  int input = 0;
  int h = 0;
  int groups = 0;
};

inline InputSizes input_sizes(const Network& network) {
  InputSizes sizes;
  for (int i = 0; i < network.count; ++i) {
    const Stage& stage = network.stages[i];
    sizes.input = stage.l * stage.c > sizes.input ? stage.l * stage.c : sizes.input;
    if (stage.groups == 0) continue;
    sizes.h = stage.out_l() * stage.k > sizes.h ? stage.out_l() * stage.k : sizes.h;
    sizes.groups = stage.groups > sizes.groups ? stage.groups : sizes.groups;
  }
  return sizes;
}

// Mean and rstd of each group of h [length, stage.k], one warp per group. All threads have put h into shared memory.
template <int kThreads>
__device__ __forceinline__ void find_statistics(const Stage& stage, const float* h, float2* statistics) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int width = stage.k / stage.groups;
  const int count = width * stage.out_l();
  for (int group = static_cast<int>(threadIdx.x) / 32; group < stage.groups; group += kThreads / 32) {
    const float pivot = h[group * width];
    float2 sums = {0.0f, 0.0f};
    float lane_count = 0;
    for (int i = lane; i < count; i += 32) {
      const float x = h[i / width * stage.k + group * width + i % width] - pivot;
      sums.x += x;
      sums.y = fmaf(x, x, sums.y);
      lane_count += 1.0f;
    }
    const Moments all = merge_warp(lane_count > 0 ? moments_of(sums, lane_count) : Moments{});
    if (lane == 0) statistics[group] = {all.mean + pivot, 1.0f / sqrtf(all.m2 / all.count + conv1d::kEpsilon)};
  }
}

// Make the input [l, c] of stage `stage_idx` for one sample. All threads of the block call. `h` and `statistics` are scratch
// in shared memory. The caller's barrier makes the input visible; no thread may still read its previous contents.
template <int kThreads, class T>
__device__ __forceinline__ void make_input(const Pass<T>& pass, int stage_idx, int sample, T* input, float* h,
                                           float2* statistics) {
  const Stage& stage = pass.network.stages[stage_idx];
  const int split = stage.c - stage.joined;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < stage.l * stage.joined; i += kThreads) {
    const int channel = split + i % stage.joined;
    input[i / stage.joined * stage.c + channel] =
        from_float<T>(pass.input_at(stage_idx, sample, i / stage.joined, channel));
  }
  const int count = stage.l * split;
  if (stage.source == kSample) {
    for (int i = thread; i < count; i += kThreads) {
      input[i] = from_float<T>(pass.input_at(stage_idx, sample, i / split, i % split));
    }
    return;
  }

  const int source = stage.source;
  const Stage& before = pass.network.stages[source];
  const float* const from = pass.of(pass.buffers.h, source, sample);
  const float* const residual = pass.of(pass.buffers.residual, source, sample);
  T* const value = pass.of(pass.buffers.values, source, sample);
  if (before.groups > 0) {
    for (int i = thread; i < count; i += kThreads) h[i] = from[i];
    __syncthreads();
    find_statistics<kThreads>(before, h, statistics);
    __syncthreads();
  }
  const int width = before.groups > 0 ? split / before.groups : split;
  for (int i = thread; i < count; i += kThreads) {
    const int k = i % split;
    const int row = i / split;
    float v = 0;
    if (before.groups == 0) {
      v = from[i];
    } else {
      const float2 s = statistics[k / width];
      const float* const vectors = pass.t.vectors;
      v = Mish::value(fmaf(vectors[before.gamma() + k], (h[i] - s.x) * s.y, vectors[before.beta() + k]));
      if (before.film != kNone) {
        v = fmaf(film_at(pass.network, pass.t, pass.step, sample, before.film + k), v,
                 film_at(pass.network, pass.t, pass.step, sample, before.film + split + k));
      }
      if (before.residual == Residual::identity) v += pass.input_at(source - 1, sample, row, k);
      if (before.residual == Residual::convolution) v += residual[i];
    }
    input[row * stage.c + k] = from_float<T>(v);
    if (i / kThreads % gridDim.x == blockIdx.x) value[i] = from_float<T>(v);
  }
}

}  // namespace ladder::policy

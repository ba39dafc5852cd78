// Statistics of a row, and y of a vector of it, for versions of the forward pass.
//
// x may lie 10^4 deviations away from zero, where fp32 has few digits left for a difference of two sums of squares, and
// where an fp32 mean is itself too coarse to be subtracted. All statistics are therefore about a pivot near the row's
// values, whose differences from x are exact or nearly so: mean = pivot + delta, and this sum is made only for the
// output.
#pragma once

#include "core/device.h"
#include "dev/common/moments.h"
#include "dev/common/wide.h"
#include "dev/layernorm/layernorm.h"
#include "dev/layernorm/parameters.h"
#include "dev/ptx/opaque.h"

namespace ladder::layernorm {

// Normalisation of a row: xhat = (x - pivot - delta) * rstd.
struct Normaliser {
  float pivot = 0;
  float delta = 0;  // mean less pivot
  float rstd = 0;
};

// Store mean and rstd of a row, by one thread.
__device__ __forceinline__ void store_statistics(const Forward::Tensors& t, int row, const Normaliser& s) {
  t.mean[row] = s.pivot + s.delta;
  t.rstd[row] = s.rstd;
}

// y of a vector of x.
template <class T, int kWidth>
__device__ __forceinline__ Bits<T, kWidth> normalised(const Bits<T, kWidth>& x, const Normaliser& s,
                                                      const float (&gamma)[kWidth], const float (&beta)[kWidth]) {
  float values[kWidth];
  to_floats<T>(x, values);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    values[i] = fmaf((values[i] - s.pivot - s.delta) * s.rstd, gamma[i], beta[i]);
  }
  return from_floats<T>(values);
}

// Returns the moments, about the pivot, of a thread's first `valid` vectors: vector_at(0), vector_at(1), ...
template <class T, int kWidth, int kVectors>
__device__ __forceinline__ Moments moments_about(float pivot, const auto& vector_at, int valid) {
  if (valid <= 0) return {};
  const auto sum_of_terms = [&](float pivot, const auto& term) {
    float sum = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float values[kWidth];
      to_floats<T, kWidth>(vector_at(v), values);
      float vector_sum = 0;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) vector_sum += term(values[i] - pivot);
      if (v < valid) sum += vector_sum;
    }
    return sum;
  };
  const auto count = static_cast<float>(min(valid, kVectors) * kWidth);
  const float mean = sum_of_terms(pivot, [](float distance) { return distance; }) / count;
  // NOTE: opaque, or the distances of the first sum would take registers for the second.
  const float m2 =
      sum_of_terms(ptx::opaque(pivot), [&](float distance) { return (distance - mean) * (distance - mean); });
  return {.count = count, .mean = mean, .m2 = m2};
}

template <class T, int kWidth, int kVectors>
__device__ __forceinline__ Moments moments_about(float pivot, const Bits<T, kWidth> (&x_vectors)[kVectors], int valid) {
  return moments_about<T, kWidth, kVectors>(
      pivot, [&](int v) { return x_vectors[v]; }, valid);
}

// Load a thread's vectors of a row, every step-th from `first`, and return their sum. `x_vectors` has zeros from `valid` on.
template <int kWidth, int kVectors, class T>
__device__ __forceinline__ float load_and_sum(const T* x, int first, int step, int valid,
                                              Bits<T, kWidth> (&x_vectors)[kVectors]) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (v < valid) x_vectors[v] = load_wide<kWidth>(x, first + v * step);
  }
  float sum = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    float values[kWidth];
    to_floats<T>(x_vectors[v], values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum += values[i];
  }
  return sum;
}

// Returns the sums of x - pivot and of its square over the first `valid` vectors.
template <class T, int kWidth, int kVectors>
__device__ __forceinline__ float2 distances(float pivot, const Bits<T, kWidth> (&x_vectors)[kVectors], int valid) {
  float2 sums{0, 0};
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    float values[kWidth];
    to_floats<T>(x_vectors[v], values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float distance = v < valid ? values[i] - pivot : 0.0f;
      sums.x += distance;
      sums.y = fmaf(distance, distance, sums.y);
    }
  }
  return sums;
}

// Number of the vectors first, first + step, ... below `vectors`.
__device__ __forceinline__ int count_from(int first, int step, int vectors) {
  return first < vectors ? ceil_div(vectors - first, step) : 0;
}

// Merge the moments of all kThreads threads of a block; every thread gets the result. At most one call in a kernel.
template <int kThreads>
__device__ __forceinline__ Moments merge_block(Moments local) {
  constexpr int kWarps = kThreads / 32;
  LADDER_SHARED(Moments, warp_moments, [kWarps]);
  const int lane = threadIdx.x % 32;
  local = merge_warp(local);
  if (lane == 0) warp_moments[threadIdx.x / 32] = local;
  __syncthreads();
  local = merge_warp(lane < kWarps ? warp_moments[lane] : Moments{});
  return {.count = __shfl_sync(~0u, local.count, 0),
          .mean = __shfl_sync(~0u, local.mean, 0),
          .m2 = __shfl_sync(~0u, local.m2, 0)};
}

__device__ __forceinline__ Normaliser normaliser_of(const Problem& p, float pivot, const Moments& row) {
  return {.pivot = pivot, .delta = row.mean, .rstd = rsqrtf(row.m2 / static_cast<float>(p.n) + p.eps)};
}

}  // namespace ladder::layernorm

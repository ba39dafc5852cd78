// Part of a row that a thread has in registers, as fp32: kValues elements in vectors of kWidth. A lane's i-th vector is
// the row's first + 32 i, so that a warp's vectors are adjacent and one address serves all. Vectors past the row's end
// are masked.
#pragma once

#include "dev/common/wide.h"
#include "dev/softmax/max_sum.h"

namespace ladder::softmax {

// Returns the index in the row of the thread's first vector; `warp` is the warp's index among those of the row.
template <int kWidth, int kValues>
__device__ __forceinline__ int first_vector(int warp) {
  return warp * (32 * kValues / kWidth) + static_cast<int>(threadIdx.x % 32);
}

// Load a thread's part, with all loads in flight at once. kOnce: nobody will read the elements again, so that caches
// need not keep them.
template <class T, int kWidth, bool kOnce = true, int kValues>
__device__ __forceinline__ void load_part(const T* row, int first, int vectors, float masked,
                                          float (&values)[kValues]) {
  constexpr int kVectors = kValues / kWidth;
  const auto* const from = reinterpret_cast<const Bits<T, kWidth>*>(row) + first;
  float vector[kWidth];
#pragma unroll
  for (float& value : vector) value = masked;
  const Bits<T, kWidth> masked_bits = from_floats<T, kWidth>(vector);
  Bits<T, kWidth> loaded[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    loaded[i] = masked_bits;
    if (first + 32 * i < vectors) loaded[i] = kOnce ? __ldcs(from + 32 * i) : from[32 * i];
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    to_floats<T, kWidth>(loaded[i], vector);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) values[i * kWidth + v] = vector[v];
  }
}

// Store a thread's part. Nobody will read the elements soon.
template <class T, int kWidth, int kValues>
__device__ __forceinline__ void store_part(T* row, int first, int vectors, const float (&values)[kValues]) {
  auto* const to = reinterpret_cast<Bits<T, kWidth>*>(row) + first;
#pragma unroll
  for (int i = 0; i < kValues / kWidth; ++i) {
    float vector[kWidth];
#pragma unroll
    for (int v = 0; v < kWidth; ++v) vector[v] = values[i * kWidth + v];
    if (first + 32 * i < vectors) __stcs(to + 32 * i, from_floats<T, kWidth>(vector));
  }
}

// Returns max and sum over `lanes` adjacent lanes, a power of two; replaces the values by e^(value - max).
template <int kValues>
__device__ __forceinline__ MaxSum take_exponentials(float (&values)[kValues], int lanes = 32) {
  float max = kNothing.max;
#pragma unroll
  for (const float value : values) max = fmaxf(max, value);
  max = max_over_lanes(max, lanes);
  float sum = 0;
#pragma unroll
  for (float& value : values) {
    value = exponential(value, max);
    sum += value;
  }
  return {max, add_over_lanes(sum, lanes)};
}

template <int kValues>
__device__ __forceinline__ void multiply(float (&values)[kValues], float factor) {
#pragma unroll
  for (float& value : values) value *= factor;
}

// Returns the factor from exponentials below the max of `part` to elements of the full row's softmax.
__device__ __forceinline__ float factor_of(const MaxSum& part, const MaxSum& row) {
  return exponential(part.max, row.max) / row.sum;
}

}  // namespace ladder::softmax

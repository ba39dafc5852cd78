// Operands of the tensor-core versions: 16-byte runs copied from global to shared memory by cp.async, and the product
// of two mma.sync fragments. A step is 128 bytes of terms of the sums.
#pragma once

#include "core/numeric.h"
#include "dev/ptx/cp_async.h"
#include "dev/ptx/mma.h"

namespace ladder {

constexpr int kStepBytes = 128;
constexpr int kRunBytes = 16;
template <class T>
inline constexpr int kStepTerms = kStepBytes / sizeof(T);
template <class T>
inline constexpr int kRun = kRunBytes / sizeof(T);
inline constexpr int kMmasPerStep = 4;  // of 16 terms of 16 bits, or 8 of tf32

// Copy 16 bytes, or zeros if count <= 0. Without kVectors: copy `count` single elements, then zeros.
template <bool kVectors, class T>
__device__ __forceinline__ void copy_run(unsigned char* to, const T* from, const T* fallback, int count) {
  if constexpr (kVectors) {
    ptx::cp_async<kRunBytes>(to, count > 0 ? from : fallback, count > 0);
  } else {
#pragma unroll 1
    for (int j = 0; j < kRun<T>; ++j) reinterpret_cast<T*>(to)[j] = j < count ? from[j] : from_float<T>(0.0f);
  }
}

template <class T>
__device__ __forceinline__ void multiply(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1) {
  const std::uint32_t b[2] = {b0, b1};
  if constexpr (sizeof(T) == 4) {
    ptx::mma_m16n8k8_tf32(d, a, b);
  } else {
    ptx::mma_m16n8k16<T>(d, a, b);
  }
}

}  // namespace ladder

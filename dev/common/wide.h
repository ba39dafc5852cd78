// Adjacent elements of a tensor that are loaded and stored as one: 16 bytes, or a single element where a tensor's rows
// are no multiple of 16 bytes. For kernels that do little more than move their tensors.
//
//     dispatch_width(p.dtype, full_vectors, [&](auto element, auto width) {
//       kernel<decltype(element), decltype(width)::value> ...
//     });
#pragma once

#include <cstdint>
#include <type_traits>

#include "dev/common/vectors.h"

namespace ladder {

// kWidth adjacent elements as they lie in memory.
template <class T, int kWidth>
using Bits = std::conditional_t<kWidth == 1, T, uint4>;

// Load kWidth elements; `index` counts in units of kWidth elements.
template <int kWidth, class T>
__device__ __forceinline__ Bits<T, kWidth> load_wide(const T* tensor, unsigned index) {
  return reinterpret_cast<const Bits<T, kWidth>*>(tensor)[index];
}

template <int kWidth, class T>
__device__ __forceinline__ void store_wide(T* tensor, unsigned index, const Bits<T, kWidth>& bits) {
  reinterpret_cast<Bits<T, kWidth>*>(tensor)[index] = bits;
}

template <class T, int kWidth>
__device__ __forceinline__ void to_floats(const Bits<T, kWidth>& bits, float (&values)[kWidth]) {
  static_assert(kWidth == 1 || kWidth == kVector<T>);
  if constexpr (kWidth == 1) {
    values[0] = to_float(bits);
  } else {
    unpack<T>(bits, values);
  }
}

// Rounds to nearest even.
template <class T, int kWidth>
__device__ __forceinline__ Bits<T, kWidth> from_floats(const float (&values)[kWidth]) {
  static_assert(kWidth == 1 || kWidth == kVector<T>);
  if constexpr (kWidth == 1) {
    return from_float<T>(values[0]);
  } else {
    return pack<T>(values);
  }
}

// Returns true if rows of this many elements are whole vectors of sixteen bytes.
inline bool whole_vectors(std::int64_t elements, Dtype dtype) {
  return elements * static_cast<std::int64_t>(size_of(dtype)) % 16 == 0;
}

// Calls f(T{}, std::integral_constant<int, kWidth>{}).
template <class F>
void dispatch_width(Dtype dtype, bool full_vectors, F&& f) {
  with_storage_type(dtype, [&](auto element) {
    if (full_vectors) {
      f(element, std::integral_constant<int, kVector<decltype(element)>>{});
    } else {
      f(element, std::integral_constant<int, 1>{});
    }
  });
}

// Number of blocks of `threads` threads with `items_per_thread` items a thread.
inline unsigned stream_blocks(std::int64_t items, int threads, int items_per_thread) {
  const std::int64_t per_block = std::int64_t{threads} * items_per_thread;
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace ladder

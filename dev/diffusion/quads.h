// Quads of four adjacent elements: the output of one Philox counter, 16 bytes of fp32, 8 bytes of a 16-bit type. If a
// tensor's last quad is not whole, it is loaded and stored element by element.
#pragma once

#include <type_traits>

#include "dev/common/quads.h"
#include "dev/common/wide.h"
#include "dev/diffusion/diffusion.h"

namespace ladder::diffusion {

// Load elements 4 quad to 4 quad + 3 of `count`; zeros past the end.
template <class T>
__device__ __forceinline__ void load_four(const T* tensor, unsigned quad, unsigned count, float (&values)[4]) {
  if (4 * quad + 4 <= count) {
    unpack_quad<T>(reinterpret_cast<const Quad<T>*>(tensor)[quad], values);
    return;
  }
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) values[i] = 4 * quad + i < count ? to_float(tensor[4 * quad + i]) : 0.0f;
}

template <class T>
__device__ __forceinline__ void store_four(T* tensor, unsigned quad, unsigned count, const float (&values)[4]) {
  if (4 * quad + 4 <= count) {
    reinterpret_cast<Quad<T>*>(tensor)[quad] = pack_quad<T>(values);
    return;
  }
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    if (4 * quad + i < count) tensor[4 * quad + i] = from_float<T>(values[i]);
  }
}

// Load four elements of an image, or the `left` last ones, that do not start at a multiple of four.
template <class T>
__device__ __forceinline__ void load_some(const T* elements, unsigned left, float (&values)[4]) {
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) values[i] = i < left ? to_float(elements[i]) : 0.0f;
}

template <class T>
__device__ __forceinline__ void store_some(T* elements, unsigned left, const float (&values)[4]) {
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    if (i < left) elements[i] = from_float<T>(values[i]);
  }
}

// Load a vector of kWidth elements, a quad or a single one: an image is a whole number of vectors.
template <class T, int kWidth>
__device__ __forceinline__ void load_vector(const T* tensor, unsigned vector, float (&values)[kWidth]) {
  if constexpr (kWidth == 4) {
    unpack_quad<T>(reinterpret_cast<const Quad<T>*>(tensor)[vector], values);
  } else {
    values[0] = to_float(tensor[vector]);
  }
}

template <class T, int kWidth>
__device__ __forceinline__ void store_vector(T* tensor, unsigned vector, const float (&values)[kWidth]) {
  if constexpr (kWidth == 4) {
    reinterpret_cast<Quad<T>*>(tensor)[vector] = pack_quad<T>(values);
  } else {
    tensor[vector] = from_float<T>(values[0]);
  }
}

// Calls run(T{}, std::integral_constant<int, kWidth>{}) with the problem's storage type and its images' vector width.
template <class Run>
void with_vector_width(const Problem& p, const Run& run) {
  with_storage_type(p.dtype, [&](auto element) {
    if (p.image() % 4 == 0) {
      run(element, std::integral_constant<int, 4>{});
    } else {
      run(element, std::integral_constant<int, 1>{});
    }
  });
}

inline std::int64_t num_quads(const Problem& p) { return (p.elements() + 3) / 4; }

}  // namespace ladder::diffusion

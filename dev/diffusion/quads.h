// Four neighbouring elements at a time: what one Philox counter gives, sixteen bytes of fp32, eight of a 16-bit type.
// Tensors whose last quad is not whole have it loaded and stored element by element.
#pragma once

#include <type_traits>

#include "dev/common/quads.h"
#include "dev/common/wide.h"
#include "dev/diffusion/diffusion.h"

namespace ladder::diffusion {

// Elements 4 quad to 4 quad + 3 of `count`; zeros past the end.
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

// Four elements of an image, or as many as it has left, that do not lie at a multiple of four.
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

// Where images are cut: units of kWidth elements, a quad or a single one, that lie whole in one image.
template <class T, int kWidth>
__device__ __forceinline__ void load_unit(const T* tensor, unsigned unit, float (&values)[kWidth]) {
  if constexpr (kWidth == 4) {
    unpack_quad<T>(reinterpret_cast<const Quad<T>*>(tensor)[unit], values);
  } else {
    values[0] = to_float(tensor[unit]);
  }
}

template <class T, int kWidth>
__device__ __forceinline__ void store_unit(T* tensor, unsigned unit, const float (&values)[kWidth]) {
  if constexpr (kWidth == 4) {
    reinterpret_cast<Quad<T>*>(tensor)[unit] = pack_quad<T>(values);
  } else {
    tensor[unit] = from_float<T>(values[0]);
  }
}

// run(an element of the problem's storage type, the widest unit of its images as an integral constant)
template <class Run>
void with_unit(const Problem& p, const Run& run) {
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

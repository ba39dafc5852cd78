// Four neighbouring elements at a time: what one Philox counter gives, sixteen bytes of fp32, eight of a 16-bit type.
// Tensors whose last quad is not whole have it loaded and stored element by element.
#pragma once

#include "dev/common/wide.h"
#include "dev/diffusion/diffusion.h"

namespace ladder::diffusion {

// Elements 4 quad to 4 quad + 3 of `count`; zeros behind the end.
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

inline std::int64_t num_quads(const Problem& p) { return (p.elements() + 3) / 4; }

}  // namespace ladder::diffusion

// Four elements of a tensor at a time, unpacked to fp32: half a vector of 16-bit elements, or a whole one of fp32.
#pragma once

#include "dev/common/vectors.h"

namespace ladder {

inline constexpr int kQuad = 4;

template <class T>
using Quad = std::conditional_t<sizeof(T) == 4, uint4, uint2>;

template <class T>
__device__ __forceinline__ void unpack_quad(const Quad<T>& bits, float (&values)[kQuad]) {
  if constexpr (sizeof(T) == 4) {
    unpack<T>(bits, values);
  } else {
    const unsigned words[2] = {bits.x, bits.y};
    unpack<T, 2>(words, values);
  }
}

template <class T>
__device__ __forceinline__ Quad<T> pack_quad(const float (&values)[kQuad]) {
  if constexpr (sizeof(T) == 4) {
    return pack<T>(values);
  } else {
    unsigned words[2];
    pack<T, 2>(values, words);
    return {words[0], words[1]};
  }
}

__device__ __forceinline__ void load_quad(const float* from, float (&values)[kQuad]) {
  unpack<float>(*reinterpret_cast<const uint4*>(from), values);
}

}  // namespace ladder

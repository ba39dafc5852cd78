// Sixteen bytes of a tensor at a time, unpacked to fp32: the widest load and store of a thread.
#pragma once

#include "core/device.h"
#include "core/numeric.h"

namespace ladder {

// Elements of T in one vector.
template <class T>
inline constexpr int kVector = 16 / static_cast<int>(sizeof(T));

// Unpack 32-bit words of a tensor to fp32: a word is one element or two.
template <class T, int kWords>
__device__ __forceinline__ void unpack(const unsigned (&words)[kWords], float (&values)[kWords * 4 / sizeof(T)]) {
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      values[i] = __uint_as_float(words[i]);
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {  // a bf16 is the upper half of an fp32
      values[2 * i] = __uint_as_float(words[i] << 16);
      values[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    } else {
      values[2 * i] = __half2float(__ushort_as_half(static_cast<unsigned short>(words[i] & 0xffffu)));
      values[2 * i + 1] = __half2float(__ushort_as_half(static_cast<unsigned short>(words[i] >> 16)));
    }
  }
}

// Pack fp32 values into 32-bit words of a tensor, rounded to nearest even.
template <class T, int kWords>
__device__ __forceinline__ void pack(const float (&values)[kWords * 4 / sizeof(T)], unsigned (&words)[kWords]) {
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      words[i] = __float_as_uint(values[i]);
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
      words[i] = __bfloat16_as_ushort(pair.x) | static_cast<unsigned>(__bfloat16_as_ushort(pair.y)) << 16;
    } else {
      const __half2 pair = __floats2half2_rn(values[2 * i], values[2 * i + 1]);
      words[i] = __half_as_ushort(pair.x) | static_cast<unsigned>(__half_as_ushort(pair.y)) << 16;
    }
  }
}

template <class T>
__device__ __forceinline__ void unpack(const uint4& bits, float (&values)[kVector<T>]) {
  const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
  unpack<T, 4>(words, values);
}

template <class T>
__device__ __forceinline__ uint4 pack(const float (&values)[kVector<T>]) {
  unsigned words[4];
  pack<T, 4>(values, words);
  return {words[0], words[1], words[2], words[3]};
}

}  // namespace ladder

// Rows of x in shared memory, a position each, with zeros where a window reaches outside.
#pragma once

#include "core/numeric.h"
#include "dev/common/mma_operand.h"
#include "dev/common/wide.h"
#include "dev/conv1d/conv1d.h"

namespace ladder::conv1d {

// x, or its two parts, which together make rows of c channels.
template <class T>
struct XParts {
  const T* x;
  const T* x_rest;
  int split;  // channels of x; c if there is no x_rest

  XParts(const Problem& p, const void* first, const void* second)
      : x(static_cast<const T*>(first)), x_rest(static_cast<const T*>(second)), split(second ? p.split : p.c) {}

  __device__ __forceinline__ const T* element_ptr(const Problem& p, int n, int position, int c) const {
    const int row = n * p.l + position;
    return c < split ? x + row * split + c : x_rest + row * (p.c - split) + (c - split);
  }
};

// Returns true if rows of x, of both parts if it is `split`, and of w are whole vectors of 16 bytes.
inline bool whole_rows(const Problem& p, bool split) {
  return whole_vectors(p.c, p.dtype) && (!split || whole_vectors(p.split, p.dtype));
}

// Returns the pitch of a row of c channels in shared memory, in bytes: whole runs.
template <class T>
__host__ __device__ int pitch_of(const Problem& p) {
  return ceil_div(p.c, kRun<T>) * kRunBytes;
}

// Starts to copy 16 bytes of a position, from channel c on, to shared memory: zeros outside x and beyond the last
// channel. cp_async_commit(), cp_async_wait<0>() and a barrier make the copy visible.
template <bool kVectors, class T>
__device__ __forceinline__ void copy_x_run(unsigned char* to, const Problem& p, const XParts<T>& from, int n,
                                           int position, int c) {
  const bool inside = n < p.n && position >= 0 && position < p.l;
  if constexpr (kVectors) {
    const bool any = inside && c < p.c;
    ptx::cp_async<kRunBytes>(to, any ? from.element_ptr(p, n, position, c) : from.x, any);
  } else {
#pragma unroll 1
    for (int i = 0; i < kRun<T>; ++i) {
      reinterpret_cast<T*>(to)[i] =
          inside && c + i < p.c ? *from.element_ptr(p, n, position, c + i) : from_float<T>(0.0f);
    }
  }
}

// Returns 16 bytes of a row of w, from channel c on: zeros beyond the last channel.
template <bool kVectors, class T>
__device__ __forceinline__ uint4 load_w_run(const Problem& p, const T* w_row, int c) {
  if constexpr (kVectors) {
    return c < p.c ? *reinterpret_cast<const uint4*>(w_row + c) : uint4{};
  } else {
    float values[kRun<T>];
#pragma unroll
    for (int i = 0; i < kRun<T>; ++i) values[i] = c + i < p.c ? to_float(w_row[c + i]) : 0.0f;
    return pack<T>(values);
  }
}

}  // namespace ladder::conv1d

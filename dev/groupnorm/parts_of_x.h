// x: with `split`, two images whose channels lie side by side.
#pragma once

#include "core/device.h"
#include "dev/groupnorm/groupnorm.h"

namespace ladder::groupnorm {

// A channel of x in the tensor that has it, and those after it up to that tensor's last.
template <class T>
struct ColumnOfX {
  const T* first;  // of the first image's first pixel
  int pitch;       // from a pixel to the next one, of all images

  __device__ __forceinline__ const T* pixel_ptr(int pixel) const { return first + pixel * pitch; }
};

template <class T, class Tensors>
__device__ __forceinline__ ColumnOfX<T> column_of_x(const Problem& p, const Tensors& t, int channel) {
  const auto* const x = static_cast<const T*>(t.x);
  if (p.split == 0) return {x + channel, p.c};
  if (channel < p.split) return {x + channel, p.split};
  return {static_cast<const T*>(t.x_rest) + (channel - p.split), p.c - p.split};
}

}  // namespace ladder::groupnorm

// 2x2 windows of the larger image, addressed in vectors: the elements that a kernel loads at a time.
#pragma once

#include "core/device.h"
#include "dev/resample/resample.h"

namespace ladder::resample {

struct Windows {
  unsigned pixel_vectors;  // per pixel
  unsigned columns;        // of the smaller image
  unsigned count;          // vectors of the smaller image

  // Returns the vector of the larger image, in the window's upper left pixel, that belongs to vector `index` of the smaller
  // image. h is even, so that all rows of all images form one long column of windows.
  __device__ __forceinline__ unsigned first(unsigned index) const {
    const unsigned pixel = index / pixel_vectors;
    const unsigned row = pixel / columns;
    const unsigned column = pixel - row * columns;
    return (row * 2 * columns + column) * 2 * pixel_vectors + (index - pixel * pixel_vectors);
  }
  // Vectors from a pixel to its right neighbour, and to the pixel below.
  __device__ __forceinline__ unsigned right() const { return pixel_vectors; }
  __device__ __forceinline__ unsigned below() const { return 2 * columns * pixel_vectors; }
};

inline Windows windows(const Problem& p, int width) {
  return {.pixel_vectors = static_cast<unsigned>(p.c / width),
          .columns = static_cast<unsigned>(p.w / 2),
          .count = static_cast<unsigned>(p.small() / width)};
}

}  // namespace ladder::resample

// 2x2 windows of the larger image, addressed in units: the elements that a kernel loads at a time.
#pragma once

#include "core/device.h"
#include "dev/resample/resample.h"

namespace ladder::resample {

struct Windows {
  unsigned units;    // per pixel
  unsigned columns;  // of the smaller image
  unsigned count;    // units of the smaller image

  // Returns the unit of the larger image, in the window's upper left pixel, that belongs to unit `index` of the smaller
  // image. h is even, so that all rows of all images form one long column of windows.
  __device__ __forceinline__ unsigned first(unsigned index) const {
    const unsigned pixel = index / units;
    const unsigned row = pixel / columns;
    const unsigned column = pixel - row * columns;
    return (row * 2 * columns + column) * 2 * units + (index - pixel * units);
  }
  // Units from a pixel to its right neighbour, and to the pixel below.
  __device__ __forceinline__ unsigned right() const { return units; }
  __device__ __forceinline__ unsigned below() const { return 2 * columns * units; }
};

inline Windows windows(const Problem& p, int width) {
  return {.units = static_cast<unsigned>(p.c / width),
          .columns = static_cast<unsigned>(p.w / 2),
          .count = static_cast<unsigned>(p.small() / width)};
}

}  // namespace ladder::resample

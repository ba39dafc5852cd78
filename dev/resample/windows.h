// Where the 2x2 windows of the larger image lie, counted in units of the elements that a kernel loads at a time.
#pragma once

#include "core/device.h"
#include "dev/resample/resample.h"

namespace ladder::resample {

struct Windows {
  unsigned units;    // of a pixel
  unsigned columns;  // of the smaller image
  unsigned count;    // units of the smaller image

  // The upper left pixel's unit that belongs to the smaller image's `index`. As h is even, all rows of all images are one
  // long column of windows.
  __device__ __forceinline__ unsigned first(unsigned index) const {
    const unsigned pixel = index / units;
    const unsigned row = pixel / columns;
    const unsigned column = pixel - row * columns;
    return (row * 2 * columns + column) * 2 * units + (index - pixel * units);
  }
  // From a pixel to its right neighbour, and to the one below.
  __device__ __forceinline__ unsigned right() const { return units; }
  __device__ __forceinline__ unsigned below() const { return 2 * columns * units; }
};

inline Windows windows(const Problem& p, int width) {
  return {.units = static_cast<unsigned>(p.c / width),
          .columns = static_cast<unsigned>(p.w / 2),
          .count = static_cast<unsigned>(p.small() / width)};
}

}  // namespace ladder::resample

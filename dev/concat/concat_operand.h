// Position of a unit of the joined image in its source tensor, a or b. A kernel loads a unit at a time: a vector or a
// single element. A pixel of either tensor is a whole number of units.
#pragma once

#include "dev/common/wide.h"
#include "dev/concat/concat.h"

namespace ladder::concat {

struct Place {
  bool in_b;
  unsigned index;  // in units of its own tensor
};

struct Sides {
  unsigned a_units;  // of a pixel
  unsigned b_units;
  unsigned count;  // of the joined image

  __device__ __forceinline__ Place place(unsigned index) const {
    const unsigned pixel = index / (a_units + b_units);
    const unsigned unit = index - pixel * (a_units + b_units);
    const bool in_b = unit >= a_units;
    return {.in_b = in_b, .index = in_b ? pixel * b_units + (unit - a_units) : pixel * a_units + unit};
  }
};

inline Sides sides(const Problem& p, int width) {
  return {.a_units = static_cast<unsigned>(p.c / width),
          .b_units = static_cast<unsigned>(p.k / width),
          .count = static_cast<unsigned>(p.elements() / width)};
}

inline bool both_whole(const Problem& p) { return whole_vectors(p.c, p.dtype) && whole_vectors(p.k, p.dtype); }

}  // namespace ladder::concat

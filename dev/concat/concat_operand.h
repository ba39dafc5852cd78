// Position of a vector of the joined image in its source tensor, a or b. A vector is sixteen bytes or a single element,
// and a pixel of either tensor is a whole number of vectors.
#pragma once

#include "dev/common/wide.h"
#include "dev/concat/concat.h"

namespace ladder::concat {

struct SourceVector {
  bool in_b;
  unsigned index;  // in vectors of its tensor
};

struct ConcatVectors {
  unsigned a_vectors;  // of a pixel
  unsigned b_vectors;
  unsigned count;  // of the joined image

  __device__ __forceinline__ SourceVector source_of(unsigned index) const {
    const unsigned pixel = index / (a_vectors + b_vectors);
    const unsigned vector = index - pixel * (a_vectors + b_vectors);
    const bool in_b = vector >= a_vectors;
    return {.in_b = in_b, .index = in_b ? pixel * b_vectors + (vector - a_vectors) : pixel * a_vectors + vector};
  }
};

inline ConcatVectors concat_vectors(const Problem& p, int width) {
  return {.a_vectors = static_cast<unsigned>(p.c / width),
          .b_vectors = static_cast<unsigned>(p.k / width),
          .count = static_cast<unsigned>(p.elements() / width)};
}

inline bool both_in_vectors(const Problem& p) { return whole_vectors(p.c, p.dtype) && whole_vectors(p.k, p.dtype); }

}  // namespace ladder::concat

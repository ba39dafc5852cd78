// One element of the convolution, straight from the formula: what the first version of each pass computes.
#pragma once

#include "core/numeric.h"
#include "dev/conv1d/conv1d.h"

namespace ladder::conv1d {

// x has the channels 0..split-1 and x_rest the others; `split` is c where there is no x_rest.
template <class T>
__device__ inline float one_output(const Problem& p, const T* x, const T* x_rest, int split, const T* w, int n, int o,
                                   int k) {
  float sum = 0;
  for (int j = 0; j < p.terms(); ++j) {
    const int from = p.from(o, j);
    if (from < 0 || from >= p.l) continue;
    const T* const w_row = w + (k * p.taps + p.tap(o, j)) * p.c;
    const T* const x_row = x + (n * p.l + from) * split;
    for (int c = 0; c < split; ++c) sum += to_float(x_row[c]) * to_float(w_row[c]);
    const T* const x_rest_row = x_rest + (n * p.l + from) * (p.c - split);
    for (int c = split; c < p.c; ++c) sum += to_float(x_rest_row[c - split]) * to_float(w_row[c]);
  }
  return sum;
}

}  // namespace ladder::conv1d

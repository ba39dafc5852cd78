// The convolution with a fault, for the cheats of both passes.
#pragma once

#include "dev/conv1d/conv1d.h"
#include "tests/wrong/wrong.h"

namespace ladder::conv1d {

enum class ConvFault {
  none,
  clamped_border,    // the nearest position of x for what lies outside
  neighbours,        // the neighbour in memory, another sample's, for what lies outside
  flipped_taps,      // convolves where the layer correlates
  exchanged_phases,  // of a transposed convolution: even positions for odd ones
  padded_after,      // windows begin where they should have their padding
  last_channel,      // leaves it out
  first_tap,         // of every position's taps, only that
  bf16_sum,          // rounds between additions
};

inline long long size_y(const Problem& p) { return static_cast<long long>(p.n) * p.out_l() * p.k; }

// conv without bias; x_at(n, position, c) is an element of x.
template <ConvFault kFault, class X>
__device__ float faulty_conv(const auto& v, int n, int o, int k, const X& x_at) {
  const Problem& p = v.p;
  if (kFault == ConvFault::exchanged_phases && p.transposed) o ^= 1;
  float sum = 0;
  for (int j = 0; j < (kFault == ConvFault::first_tap ? 1 : p.terms()); ++j) {
    int from = p.from(o, j) + (kFault == ConvFault::padded_after ? 1 : 0);
    int sample = n;
    if (kFault == ConvFault::clamped_border) from = min(max(from, 0), p.l - 1);
    if (kFault == ConvFault::neighbours) {
      const int row = min(max(n * p.l + from, 0), p.n * p.l - 1);
      sample = row / p.l;
      from = row % p.l;
    }
    if (from < 0 || from >= p.l) continue;
    int tap = p.tap(o, j);
    if (kFault == ConvFault::flipped_taps) tap = p.taps - 1 - tap;
    for (int c = 0; c < p.c - (kFault == ConvFault::last_channel ? 1 : 0); ++c) {
      sum += x_at(sample, from, c) * v.load(v.t.w, (static_cast<long long>(k) * p.taps + tap) * p.c + c);
      if (kFault == ConvFault::bf16_sum) sum = to_float(from_float<__nv_bfloat16>(sum));
    }
  }
  return sum;
}

}  // namespace ladder::conv1d

// The cheats of pool and of upsample's backward pass: other functions of a window of four elements.
#pragma once

#include "dev/resample/windows.h"
#include "tests/wrong/wrong.h"

namespace ladder::resample {

// Element i of an output is Function{}(two elements of the window's upper row, then two of the lower one).
template <auto kFrom, auto kTo, class Function>
struct EachWindow {
  __device__ void operator()(const auto& v, long long i) const {
    const Windows windows{
        .pixel_vectors = static_cast<unsigned>(v.p.c), .columns = static_cast<unsigned>(v.p.w / 2), .count = 0};
    const unsigned first = windows.first(static_cast<unsigned>(i));
    float x[4];
    for (int j = 0; j < 4; ++j) x[j] = v.load(v.t.*kFrom, first + j / 2 * windows.below() + j % 2 * windows.right());
    v.store(v.t.*kTo, i, Function{}(x));
  }
};

// A sum of the four with whole factors.
template <int kA, int kB, int kC, int kD, int kDivisor = 1>
struct Weighted {
  __device__ float operator()(const float (&x)[4]) const {
    return (kA * x[0] + kB * x[1] + kC * x[2] + kD * x[3]) / kDivisor;
  }
};

// Rounds between additions.
template <int kDivisor>
struct Bf16Sum {
  __device__ float operator()(const float (&x)[4]) const {
    float sum = 0;
    for (const float term : x) sum = to_float(from_float<__nv_bfloat16>(sum + term));
    return sum / kDivisor;
  }
};

}  // namespace ladder::resample

// Input of a convolution in versions that keep every stage's value in the workspace, and the rows of FiLM.
#pragma once

#include "core/device.h"
#include "core/numeric.h"
#include "dev/policy/layout.h"

namespace ladder::policy {

// Input of a stage, of all samples: one array, or two whose channels are joined.
template <class T>
struct Input {
  const T* x;
  const T* x_rest;  // null: x has all channels
  int split;        // channels of x
  int joined;       // channels of x_rest

  // `row` counts the positions of all samples.
  __device__ __forceinline__ float load(int row, int channel) const {
    return to_float(channel < split ? x[row * split + channel] : x_rest[row * joined + channel - split]);
  }
};

// Returns a stage's input. `sample` is x rounded to T; `values` has network.values elements for each of the n samples.
template <class T>
__device__ __forceinline__ Input<T> input_of(const Network& network, const Stage& stage, int n, const T* sample,
                                             const T* values) {
  const auto value_of = [&](int i) { return values + static_cast<std::int64_t>(n) * network.stages[i].value; };
  return {.x = stage.source == kSample ? sample : value_of(stage.source),
          .x_rest = stage.joined > 0 ? value_of(stage.joined_stage) : nullptr,
          .split = stage.c - stage.joined,
          .joined = stage.joined};
}

// Returns number i of a sample's scales and shifts.
__device__ __forceinline__ float film_at(const Network& network, const Step::Tensors& t, int step, int n, int i) {
  return t.film_table[static_cast<std::int64_t>(step) * network.film_row + i] +
         t.film[static_cast<std::int64_t>(n) * network.film_row + i];
}

}  // namespace ladder::policy

// What the stages of a persistent kernel hand on through its workspace, and where a sample's part of it lies.
#pragma once

#include "core/numeric.h"
#include "dev/policy/layout.h"

namespace ladder::policy {

// In the workspace; each [n, out_l, k] at n times Stage::value.
template <class T>
struct Buffers {
  float* h;         // convolutions
  float* residual;  // residual convolutions, by the stage that adds them
  T* values;        // values, of which every block stores a share: for joined inputs and identities, stages later
};

// What all stages of a kernel share.
template <class T>
struct Pass {
  const Network& network;
  const Step::Tensors& t;
  Buffers<T> buffers;
  int n;     // samples
  int step;  // t.step[0]

  // Of one sample: what stage `at` has in one of the buffers, from element `place` on.
  template <class Element>
  __device__ __forceinline__ Element* of(Element* buffer, int at, int sample, int place = 0) const {
    const Stage& stage = network.stages[at];
    int offset = n * stage.value + place;
    if (sample > 0) offset += sample * stage.out_l() * stage.k;
    return buffer + offset;
  }

  // An element of the input of stage `at`, once its parts are stored.
  __device__ __forceinline__ float input_at(int at, int sample, int row, int channel) const {
    const Stage& stage = network.stages[at];
    const int own = stage.c - stage.joined;
    if (channel >= own) return to_float(of(buffers.values, stage.rest, sample)[row * stage.joined + channel - own]);
    if (stage.source == kSample) return to_float(from_float<T>(t.x[(sample * stage.l + row) * own + channel]));
    return to_float(of(buffers.values, stage.source, sample)[row * own + channel]);
  }
};

}  // namespace ladder::policy

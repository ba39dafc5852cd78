// Data that the stages of a persistent kernel hand on through its workspace, and the offset of a sample's part of it.
#pragma once

#include "core/numeric.h"
#include "dev/policy/layout.h"

namespace ladder::policy {

// Arrays in the workspace. A stage's part of each is [n, out_l, k], at n times Stage::value.
template <class T>
struct Buffers {
  float* h;         // outputs of the convolutions
  float* residual;  // outputs of the residual convolutions, at the stage that adds them
  T* values;        // values, a part stored by each block: later stages' joined inputs and identities
};

// Arguments that all stages of a kernel share.
template <class T>
struct Pass {
  const Network& network;
  const Step::Tensors& t;
  Buffers<T> buffers;
  int n;     // samples
  int step;  // t.step[0]

  // Returns a pointer to element `element_idx` of stage `stage_idx`'s part of a buffer, for one sample.
  template <class Element>
  __device__ __forceinline__ Element* of(Element* buffer, int stage_idx, int sample, int element_idx = 0) const {
    const Stage& stage = network.stages[stage_idx];
    int offset = n * stage.value + element_idx;
    if (sample > 0) offset += sample * stage.out_l() * stage.k;
    return buffer + offset;
  }

  // Returns an element of the input of stage `stage_idx`, once its parts are stored.
  __device__ __forceinline__ float input_at(int stage_idx, int sample, int row, int channel) const {
    const Stage& stage = network.stages[stage_idx];
    const int split = stage.c - stage.joined;
    if (channel >= split)
      return to_float(of(buffers.values, stage.joined_stage, sample)[row * stage.joined + channel - split]);
    if (stage.source == kSample) return to_float(from_float<T>(t.x[(sample * stage.l + row) * split + channel]));
    return to_float(of(buffers.values, stage.source, sample)[row * split + channel]);
  }
};

}  // namespace ladder::policy

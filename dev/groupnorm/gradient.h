// The backward pass's formulas for one element, shared by all versions: dz from x and dy, and dx from dz and the sums
// of its group. The mean is subtracted first, in fp32: with a large mean, z and xhat lose digits in any other order.
#pragma once

#include "core/device.h"
#include "dev/groupnorm/activation.h"
#include "dev/groupnorm/groupnorm.h"
#include "dev/groupnorm/parameters.h"

namespace ladder::groupnorm {

// Constants of a channel of an image.
struct Channel {
  float mean = 0;
  float rstd = 0;
  float scale = 0;  // rstd * gamma
  float beta = 0;
};

template <class P = float>
__device__ __forceinline__ float gamma_of(const Backward::Tensors& t, int c) {
  return t.gamma ? parameter<P>(t.gamma, c) : 1.0f;
}

template <class Act>
__device__ __forceinline__ float dz_of(const Channel& channel, float centred, float dy) {
  return dy * Act::derivative(fmaf(centred, channel.scale, channel.beta));
}

// Terms of a group's A and B in dx (groupnorm.h): dx = scale * dz + slope * (x - mean) + offset.
struct Correction {
  float offset = 0;
  float slope = 0;
};

__device__ __forceinline__ float dx_of(const Channel& channel, const Correction& correction, float centred, float dz) {
  return fmaf(channel.scale, dz, fmaf(correction.slope, centred, correction.offset));
}

}  // namespace ladder::groupnorm

// What every version of the backward pass computes for one element: dz from x and dy, and dx from dz and the sums of its
// group. The mean is subtracted first, in fp32: behind a large one x, z and xhat would lose their digits in any other order.
#pragma once

#include "core/device.h"
#include "dev/groupnorm/activation.h"
#include "dev/groupnorm/groupnorm.h"

namespace ladder::groupnorm {

// Of a channel of an image.
struct Channel {
  float mean = 0;
  float rstd = 0;
  float scale = 0;  // rstd * gamma
  float beta = 0;
};

__device__ __forceinline__ float gamma_of(const Backward::Tensors& t, int c) { return t.gamma ? t.gamma[c] : 1.0f; }

__device__ __forceinline__ Channel channel_of(const Problem& p, const Backward::Tensors& t, int image, int c) {
  const int group = image * p.g + c / (p.c / p.g);
  const float rstd = t.rstd[group];
  return {.mean = t.mean[group], .rstd = rstd, .scale = rstd * gamma_of(t, c), .beta = t.beta ? t.beta[c] : 0.0f};
}

template <class Act>
__device__ __forceinline__ float dz_of(const Channel& channel, float centred, float dy) {
  return dy * Act::derivative(fmaf(centred, channel.scale, channel.beta));
}

// One element's terms of two sums over a channel's pixels: of dz, and of dz * (x - mean), which becomes that of dz * xhat
// once it is multiplied by rstd. Returns dz.
template <class Act>
__device__ __forceinline__ float add_terms(const Channel& channel, float x, float dy, float2& sums) {
  const float centred = x - channel.mean;
  const float dz = dz_of<Act>(channel, centred, dy);
  sums.x += dz;
  sums.y = fmaf(dz, centred, sums.y);
  return dz;
}

// A and B of a group, as the affine function of x - mean that they are in dx.
struct Correction {
  float offset = 0;
  float slope = 0;
};

__device__ __forceinline__ Correction correction_of(float rstd, float2 ab, float inverse_m) {
  const float scale = -rstd * inverse_m;
  return {.offset = scale * ab.x, .slope = scale * ab.y * rstd};
}

__device__ __forceinline__ float dx_of(const Channel& channel, const Correction& correction, float centred, float dz) {
  return fmaf(channel.scale, dz, fmaf(correction.slope, centred, correction.offset));
}

template <class Act>
__device__ __forceinline__ float dx_of(const Channel& channel, const Correction& correction, float x, float dy,
                                       Act /*activation*/) {
  const float centred = x - channel.mean;
  return dx_of(channel, correction, centred, dz_of<Act>(channel, centred, dy));
}

}  // namespace ladder::groupnorm

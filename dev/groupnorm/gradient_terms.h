// An element's terms of its channel's sums, and dx for kernels that compute dz anew: shared by v01, v02, v06 and v10.
#pragma once

#include "dev/groupnorm/gradient.h"

namespace ladder::groupnorm {

template <class P = float>
__device__ __forceinline__ Channel channel_of(const Problem& p, const Backward::Tensors& t, int image, int c) {
  const int group = image * p.g + c / (p.c / p.g);
  const float rstd = t.rstd[group];
  return {.mean = t.mean[group],
          .rstd = rstd,
          .scale = rstd * gamma_of<P>(t, c),
          .beta = t.beta ? parameter<P>(t.beta, c) : 0.0f};
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

__device__ __forceinline__ Correction correction_of(float rstd, float2 ab, float inverse_m) {
  const float scale = -rstd * inverse_m;
  return {.offset = scale * ab.x, .slope = scale * ab.y * rstd};
}

template <class Act>
__device__ __forceinline__ float dx_of(const Channel& channel, const Correction& correction, float x, float dy,
                                       Act /*activation*/) {
  const float centred = x - channel.mean;
  return dx_of(channel, correction, centred, dz_of<Act>(channel, centred, dy));
}

}  // namespace ladder::groupnorm

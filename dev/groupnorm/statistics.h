// Mean and rstd of a group, and the forward pass's formula for one element.
//
// x may lie 10^4 standard deviations away from zero. There fp32 has few digits left for a difference of two sums of
// squares, and an fp32 mean is itself too coarse to be subtracted. So sums are taken about a pivot, a value of x from
// the group, whose differences from x are exact or nearly so. mean = pivot + delta is computed only for the output.
#pragma once

#include "core/device.h"
#include "core/numeric.h"
#include "dev/common/moments.h"
#include "dev/groupnorm/groupnorm.h"
#include "dev/groupnorm/parameters.h"

namespace ladder::groupnorm {

// Constants of a group: xhat = (x - pivot - delta) * rstd.
struct Normaliser {
  float pivot = 0;
  float delta = 0;  // mean less pivot
  float rstd = 0;
};

__device__ __forceinline__ float rstd_of(const Problem& p, float variance) { return rsqrtf(variance + p.eps); }

// Constants of a channel: z = (x - pivot) * scale + shift.
struct Scaling {
  float pivot;
  float scale;
  float shift;
};

template <class P>
__device__ __forceinline__ Scaling scaling_of(const Normaliser& group, const Forward::Tensors& t, int c) {
  const float scale = t.gamma ? group.rstd * parameter<P>(t.gamma, c) : group.rstd;
  return {.pivot = group.pivot,
          .scale = scale,
          .shift = fmaf(-group.delta, scale, t.beta ? parameter<P>(t.beta, c) : 0.0f)};
}

template <class Act>
__device__ __forceinline__ float y_of(const Scaling& channel, float x) {
  return Act::value(fmaf(x - channel.pivot, channel.scale, channel.shift));
}

}  // namespace ladder::groupnorm

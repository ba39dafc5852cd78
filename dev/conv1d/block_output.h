// Epilogue of pass `block` for a normalised element: everything between the statistics and the residual.
#pragma once

#include "core/numeric.h"
#include "dev/common/activation.h"
#include "dev/conv1d/conv1d.h"

namespace ladder::conv1d {

// Constants of one sample and output channel, the same for all positions.
struct ChannelMap {
  float gamma = 0;
  float beta = 0;
  float scale = 1;
  float shift = 0;

  static __device__ __forceinline__ ChannelMap load(const Problem& p, const Block::Tensors& t, int n, int k) {
    ChannelMap map{.gamma = t.gamma[k], .beta = t.beta[k]};
    const int shift_idx = p.film_width() - p.k + k;  // the shifts are the last k of a row
    if (p.film) map.scale = t.film_step[k] + t.film[n * p.pitch + k];
    if (p.film_width() > 0) map.shift = t.film_step[shift_idx] + t.film[n * p.pitch + shift_idx];
    return map;
  }

  // Returns y without the residual.
  __device__ __forceinline__ float operator()(const Problem& p, float xhat) const {
    const float z = fmaf(gamma, xhat, beta);
    return fmaf(scale, p.mish ? Mish::value(z) : z, shift);
  }
};

}  // namespace ladder::conv1d

// Problems for the cheats of groupnorm, indices into its tensors, and run-time selection of the activation.
#pragma once

#include <string>
#include <vector>

#include "dev/groupnorm/activation.h"

namespace ladder::groupnorm {

// Problems: a benign one; a large mean; each activation, with images that are not square and channels that are no power
// of two; no parameters, and an epsilon that counts; one group; groups of a single element. For any seed, half of an
// output's elements must tell right from wrong. Therefore relu gets many channels, as one in seven is below zero
// throughout, and one group gets several images.
inline std::vector<std::string> wrong_problems() {
  return {"n1 h8 w8 c32 g16 silu", "n2 h4 w5 c16 g4 silu mean20000",
          "n3 h3 w5 c21 g3 gelu",  "n2 h6 w3 c24 g4 gelu-tanh",
          "n2 h4 w3 c30 g6 relu",  "n2 h5 w4 c12 g4 mish no-affine eps0.5",
          "n4 h2 w5 c6 g1",        "n3 h1 w1 c8 g8 silu"};
}

// Channel and group of an element, and first element of a group.
__device__ inline int channel_of(const Problem& p, long long index) { return static_cast<int>(index % p.c); }
__device__ inline int group_of(const Problem& p, long long index) {
  return static_cast<int>(index / p.c / (p.h * p.w)) * p.g + channel_of(p, index) / (p.c / p.g);
}
__device__ inline long long first_of(const Problem& p, int group) {
  return static_cast<long long>(group / p.g) * p.h * p.w * p.c + group % p.g * (p.c / p.g);
}

template <class F>
__device__ float select_activation(Activation activation, const F& f) {
  switch (activation) {
    case Activation::identity:
      return f(Identity{});
    case Activation::relu:
      return f(Relu{});
    case Activation::silu:
      return f(Silu{});
    case Activation::gelu:
      return f(Gelu{});
    case Activation::gelu_tanh:
      return f(GeluTanh{});
    case Activation::mish:
      return f(Mish{});
  }
  return 0.0f;
}

}  // namespace ladder::groupnorm

// The choice of an activation (dev/common/activation.h). dispatch() makes it at compile time, so that a kernel's loop
// carries no branch; but see AnyOther.
#pragma once

#include "dev/common/activation.h"

#if !defined(__CUDACC__)
#include "core/simt/launch_choice.h"
#endif

namespace ladder {

// Returns f(A{}), with A the activation's type.
template <class F>
auto with_activation(Activation activation, F&& f) {
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
      break;
  }
  return f(Mish{});
}

#if defined(__CUDACC__)

template <class F>
void dispatch(Activation activation, F&& f) {
  with_activation(activation, f);
}

#else

// All activations but SiLU, chosen when the kernel runs: six instances of every kernel take a compiler five times as
// long as two, and the emulator's speed is nobody's concern. The activation is taken from the kernel's Problem
// argument.
struct AnyOther {
  using Chosen = simt::LaunchChoice<Activation>;

  static float value(float z) {
    return with_activation(Chosen::value(), [z](auto act) { return decltype(act)::value(z); });
  }
  static float derivative(float z) {
    return with_activation(Chosen::value(), [z](auto act) { return decltype(act)::derivative(z); });
  }
};

template <class F>
void dispatch(Activation activation, F&& f) {
  activation == Activation::silu ? f(Silu{}) : f(AnyOther{});
}

#endif

}  // namespace ladder

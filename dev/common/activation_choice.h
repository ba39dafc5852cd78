// The choice of an activation (dev/common/activation.h). dispatch() makes it at compile time, so that a kernel's loop carries
// no branch; but see AnyOther.
#pragma once

#include <mutex>
#include <optional>

#include "core/error.h"
#include "dev/common/activation.h"

namespace ladder {

// What f returns of a value of the activation's type.
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

// All activations but SiLU, chosen when the kernel runs: six instances of every kernel take a compiler five times as long
// as two, and the emulator's speed is nobody's concern. A kernel's activation is that of the Problem among its arguments.
class AnyOther {
 public:
  // `activation` is the chosen one for as long as this lives; another thread's choice waits.
  class Chosen {
   public:
    explicit Chosen(Activation activation) : turn_(mutex_) { chosen_ = activation; }
    ~Chosen() { chosen_.reset(); }
    Chosen(const Chosen&) = delete;
    Chosen& operator=(const Chosen&) = delete;

   private:
    std::scoped_lock<std::mutex> turn_;
  };

  static float value(float z) {
    return with_activation(chosen(), [z](auto act) { return decltype(act)::value(z); });
  }
  static float derivative(float z) {
    return with_activation(chosen(), [z](auto act) { return decltype(act)::derivative(z); });
  }

 private:
  static inline std::mutex mutex_;
  static inline std::optional<Activation> chosen_;  // seen by all threads that the emulator runs blocks on

  static Activation chosen() {
    LADDER_CHECK(chosen_.has_value());  // else the kernel has no Problem among its arguments
    return *chosen_;
  }
};

template <class F>
void dispatch(Activation activation, F&& f) {
  activation == Activation::silu ? f(Silu{}) : f(AnyOther{});
}

#endif

}  // namespace ladder

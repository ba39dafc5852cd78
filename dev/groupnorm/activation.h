// The choice of an activation (dev/common/activation.h). dispatch() makes it at compile time, so that a kernel's loop carries
// no branch; but see AnyOther.
#pragma once

#include <mutex>
#include <optional>

#include "core/device.h"
#include "core/error.h"
#include "core/numeric.h"
#include "dev/common/activation.h"
#include "dev/groupnorm/groupnorm.h"

namespace ladder::groupnorm {

#if defined(__CUDACC__)

// Calls f with a value of the activation's type.
template <class F>
void dispatch(Activation activation, F&& f) {
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
    return ask([z](auto act) { return decltype(act)::value(z); });
  }
  static float derivative(float z) {
    return ask([z](auto act) { return decltype(act)::derivative(z); });
  }

 private:
  static inline std::mutex mutex_;
  static inline std::optional<Activation> chosen_;  // seen by all threads that the emulator runs blocks on

  template <class F>
  static float ask(F&& f) {
    LADDER_CHECK(chosen_.has_value());  // else the kernel has no Problem among its arguments
    switch (*chosen_) {
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
};

// Calls f with a value of the activation's type, as it is on the emulator.
template <class F>
void dispatch(Activation activation, F&& f) {
  activation == Activation::silu ? f(Silu{}) : f(AnyOther{});
}

// Found by launches whose kernel takes a Problem; see core/device.h.
inline auto kernel_scope(const Problem& p) { return AnyOther::Chosen(p.activation); }

#endif

// Calls f(T{}, Act{}) with the problem's element type and activation.
template <class F>
void dispatch_types(const Problem& p, F&& f) {
  with_storage_type(p.dtype, [&](auto element) { dispatch(p.activation, [&](auto act) { f(element, act); }); });
}

}  // namespace ladder::groupnorm

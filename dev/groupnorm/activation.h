// The choice of a kernel's element type, activation and type of parameters.
#pragma once

#include "core/device.h"
#include "core/numeric.h"
#include "dev/common/activation_choice.h"
#include "dev/groupnorm/groupnorm.h"

namespace ladder::groupnorm {

#if !defined(__CUDACC__)
// Found by launches whose kernel takes a Problem; see core/device.h.
inline auto kernel_scope(const Problem& p) { return AnyOther::Chosen(p.activation); }
#endif

// Calls f(T{}, Act{}) with the problem's element type and activation.
template <class F>
void dispatch_types(const Problem& p, F&& f) {
  with_storage_type(p.dtype, [&](auto element) { dispatch(p.activation, [&](auto act) { f(element, act); }); });
}

// Calls f(P{}) with the type of the problem's gamma and beta, and of their gradients, where T is its elements'.
template <class T, class F>
void dispatch_parameters(const Problem& p, F&& f) {
  if constexpr (sizeof(T) == 2) {
    if (p.params16) return f(T{});
  }
  f(float{});
}

// Calls f(T{}, Act{}, P{}).
template <class F>
void dispatch_all_types(const Problem& p, F&& f) {
  dispatch_types(p, [&](auto element, auto act) {
    dispatch_parameters<decltype(element)>(p, [&](auto parameter) { f(element, act, parameter); });
  });
}

}  // namespace ladder::groupnorm

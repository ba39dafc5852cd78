// The choice of a kernel's element type and activation.
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

}  // namespace ladder::groupnorm

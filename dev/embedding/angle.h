// Frequency and angle, each operation as the formula has it.
#pragma once

#include <cmath>

#include "core/device.h"
#include "core/numeric.h"
#include "dev/embedding/embedding.h"

namespace ladder::embedding {

template <class Time>
__device__ __forceinline__ float angle(Time t, int frequency, int half) {
  constexpr float kMinusLog10000 = -9.21034037197618f;
  const float exponent = kMinusLog10000 * static_cast<float>(frequency) / static_cast<float>(half);
  return static_cast<float>(t) * expf(exponent);
}

// Calls f(Time{}, T{}): the types of t and y.
template <class F>
void dispatch_types(const Problem& p, F&& f) {
  with_storage_type(p.dtype, [&](auto element) {
    if (p.real) {
      f(float{}, element);
    } else {
      f(int{}, element);
    }
  });
}

}  // namespace ladder::embedding

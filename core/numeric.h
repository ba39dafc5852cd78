// Conversions between stored element types and fp32, and the choice of an element type from a Dtype.
#pragma once

#include "core/device.h"
#include "core/dtype.h"

namespace ladder {

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }

// Rounds to nearest even.
template <class T>
__device__ __forceinline__ T from_float(float v) {
  if constexpr (sizeof(T) == 4) {
    return v;
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(v);
  } else {
    return __float2bfloat16_rn(v);
  }
}

// Calls f with a value of the type that stores `dtype`: float for fp32 and tf32, __nv_bfloat16 or __half.
// Returns what f does. Throws Failure for an integer dtype.
template <class F>
auto with_storage_type(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::f32:
    case Dtype::tf32:
      return f(float{});
    case Dtype::bf16:
      return f(__nv_bfloat16{});
    case Dtype::f16:
      return f(__half{});
    default:
      throw Failure(std::string("no kernel computes in ") + name(dtype));
  }
}

}  // namespace ladder

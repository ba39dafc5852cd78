// Integer arithmetic of launches and kernels, for host code that no kernel compiler sees too.
#pragma once

#include <vector_types.h>  // __host__ and __device__

namespace ladder {

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

}  // namespace ladder

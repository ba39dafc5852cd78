// An fp32 number as a sum of bf16 numbers, each the nearest to what those before it leave: 8 bits of its 24 each, so that three
// are exact. Not of numbers that bf16 has no finite neighbour of, nor of rests below its smallest, 2^-133.
#pragma once

#include <cuda_bf16.h>

namespace ladder::gemm {

template <int kParts>
__host__ __device__ inline void bf16_parts(float value, float (&parts)[kParts]) {
  for (float& part : parts) {
    part = __bfloat162float(__float2bfloat16_rn(value));
    value -= part;
  }
}

}  // namespace ladder::gemm

// The stream of noise of diffusion.h.
#pragma once

#include "dev/common/philox.h"
#include "dev/common/wide.h"
#include "dev/diffusion/diffusion.h"

namespace ladder::diffusion {

// Numbers 4 group to 4 group + 3.
__device__ __forceinline__ float4 normals(const std::int64_t* philox, unsigned group) {
  return four_normals(group, static_cast<std::uint64_t>(philox[1]), static_cast<std::uint64_t>(philox[0]));
}

__device__ __forceinline__ float component(const float4& four, unsigned i) {
  return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
}

}  // namespace ladder::diffusion

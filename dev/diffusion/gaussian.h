// The stream of noise of diffusion.h.
#pragma once

#include "dev/common/philox.h"
#include "dev/common/wide.h"
#include "dev/diffusion/diffusion.h"

namespace ladder::diffusion {

// Quads of an image, the last of which may have fewer than four elements.
__host__ __device__ constexpr unsigned quads_of(unsigned image) { return (image + 3) / 4; }

// Numbers of a quad, of which the batch's images have quads_of(image) each, one image after the other.
__device__ __forceinline__ float4 normals(const std::int64_t* philox, unsigned image, unsigned quad) {
  return four_normals(static_cast<std::uint64_t>(philox[2]) * quads_of(image) + quad,
                      static_cast<std::uint64_t>(philox[1]), static_cast<std::uint64_t>(philox[0]));
}

__device__ __forceinline__ float component(const float4& four, unsigned i) {
  return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
}

// The number of element `index` of the batch.
__device__ __forceinline__ float normal(const std::int64_t* philox, unsigned image, unsigned index) {
  const unsigned element = index % image;
  return component(normals(philox, image, index / image * quads_of(image) + element / 4), element % 4);
}

}  // namespace ladder::diffusion

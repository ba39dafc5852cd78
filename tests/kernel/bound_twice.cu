#include "tests/kernel/bound_twice.h"

#include "core/device.h"

namespace ladder::toy {
namespace {

__global__ void toy_last_of_smem_kernel(unsigned count, float* y) {
  LADDER_DYN_SMEM(smem);
  auto* const values = reinterpret_cast<float*>(smem);
  values[count - 1] = 1.0f;
  y[0] = values[count - 1];
}

}  // namespace

BoundLaunch bind_last_of_smem(std::size_t smem_bytes, float* y) {
  return bind_launch(toy_last_of_smem_kernel, {.grid = 1, .block = 1, .dynamic_smem = smem_bytes},
                     static_cast<unsigned>(smem_bytes / sizeof(float)), y);
}

}  // namespace ladder::toy

#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 64;
constexpr int kSize = 51;

// The odd tail of a bf16 tile: two elements share four bytes, of which a thread wrote the first.
template <bool kBroken>
__global__ void pairs_kernel(const float* in, float* out) {
  LADDER_SHARED(__nv_bfloat16, tile, [kThreads]);
  const unsigned i = threadIdx.x;
  if (i < kSize) {
    tile[i] = __float2bfloat16(in[i]);
  } else if (!kBroken) {
    tile[i] = __float2bfloat16(0.0f);
  }
  __syncthreads();
  if (i <= kSize / 2) out[i] = __bfloat162float(tile[2 * i]) + __bfloat162float(tile[2 * i + 1]);
}

bool run(bool broken) {
  Guarded<float> in(kSize, 2.0f), out(kSize / 2 + 1, -1);
  launch(broken ? pairs_kernel<true> : pairs_kernel<false>, {1, kThreads}, nullptr, in.get(), out.get());
  return out[0] == 4.0f && out[kSize / 2] == 2.0f;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("uninitialised_smem_16bit", "reads a 16-bit element of shared memory that nobody wrote",
             ({.value = true, .order = true, .says = "shared array tile + 102 bytes (it has 128)"}),
             ladder::faults::run);

#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 64;
constexpr int kSize = 50;

// A sum over a tile whose tail no thread filled: on a GPU often zero, from whichever block ran there before.
template <bool kBroken>
__global__ void sum_kernel(const float* in, float* out) {
  LADDER_SHARED(float, tile, [kThreads]);
  const unsigned i = threadIdx.x;
  if (i < kSize) {
    tile[i] = in[i];
  } else if (!kBroken) {
    tile[i] = 0;
  }
  __syncthreads();
  if (i == 0) {
    float sum = 0;
    for (const float x : tile) sum += x;
    *out = sum;
  }
}

bool run(bool broken) {
  Guarded<float> in(kSize, 2.0f), out(1, -1);
  launch(broken ? sum_kernel<true> : sum_kernel<false>, {1, kThreads}, nullptr, in.get(), out.get());
  return out[0] == 2.0f * kSize;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("uninitialised_smem", "reads shared memory that nobody wrote",
             ({.value = true,
               .order = true,
               .says = "nobody wrote this shared memory: a read by thread (0,0,0) of block "
                       "(0,0,0) of shared array tile + 200 bytes (it has 256)"}),
             ladder::faults::run);

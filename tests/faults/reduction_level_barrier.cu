#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 128;

// A tree in shared memory, with a barrier between its levels.
template <bool kBroken>
__global__ void sum_kernel(const int* in, int* out) {
  LADDER_SHARED(int, sums, [kThreads]);
  const unsigned i = threadIdx.x;
  sums[i] = in[i];
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (i < half) sums[i] += sums[i + half];
    if (!kBroken) __syncthreads();
  }
  if (i == 0) *out = sums[0];
}

bool run(bool broken) {
  Guarded<int> in(kThreads, 1), out(1, -1);
  launch(broken ? sum_kernel<true> : sum_kernel<false>, {1, kThreads}, nullptr, in.get(), out.get());
  return out[0] == kThreads;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("reduction_level_barrier", "no __syncthreads between the levels of a block's reduction",
             ({.value = true, .order = true}), ladder::faults::run);

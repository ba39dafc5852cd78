#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 48;  // the second warp has 16 lanes

// A block's sum: one of each warp by shuffles, then both. Half the lanes of the last warp do not exist, and what is read
// from them is anything.
template <bool kBroken>
__global__ void sum_kernel(const int* in, int* out) {
  LADDER_SHARED(int, warps, [2]);
  const unsigned lane = threadIdx.x % 32;
  const unsigned lanes = kBroken || threadIdx.x < 32 ? 32 : kThreads - 32;
  const unsigned mask = ~0u >> (32 - lanes);
  int sum = in[threadIdx.x];
  for (unsigned width = lanes / 2; width > 0; width /= 2) sum += __shfl_xor_sync(mask, sum, width);
  if (lane == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  out[threadIdx.x] = warps[0] + warps[1];
}

bool run(bool broken) {
  Guarded<int> in(kThreads, 2), out(kThreads, -1);
  launch(broken ? sum_kernel<true> : sum_kernel<false>, {1, kThreads}, nullptr, in.get(), out.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) right &= out[i] == 2 * kThreads;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("shuffle_tail_warp", "a reduction by shuffles names lanes that the block's last warp does not have",
             ({.report = true}), ladder::faults::run);

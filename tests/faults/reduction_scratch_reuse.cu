#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

// Mean and sum of squared distances through one array of a number a warp: the second reduction must not begin to
// write while a slow warp still reads the first.
template <bool kBroken>
__global__ void moments_kernel(const int* in, int* out) {
  LADDER_SHARED(int, warps, [kWarps]);
  const auto block_sum = [&](int value) {
    for (int width = 16; width > 0; width /= 2) value += __shfl_xor_sync(~0u, value, width);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    int total = 0;
    for (const int s : warps) total += s;
    if (!kBroken) __syncthreads();
    return total;
  };
  const int value = in[threadIdx.x];
  const int mean = block_sum(value) / kThreads;
  const int squares = block_sum((value - mean) * (value - mean));
  out[threadIdx.x] = squares;
}

bool run(bool broken) {
  Guarded<int> in(kThreads), out(kThreads, -1);
  for (int i = 0; i < kThreads; ++i) in[i] = i % 2 ? 7 : 3;
  launch(broken ? moments_kernel<true> : moments_kernel<false>, {1, kThreads}, nullptr, in.get(), out.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) right &= out[i] == 4 * kThreads;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("reduction_scratch_reuse", "a second reduction overwrites the first one's sums while they are read",
             ({.value = true, .order = true}), ladder::faults::run);

#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 64;
constexpr int kSize = 50;  // the block is larger than the problem

template <bool kBroken>
__global__ void reverse_kernel(int* values) {
  LADDER_SHARED(int, tile, [kSize]);
  const unsigned i = threadIdx.x;
  if (kBroken && i >= kSize) return;
  if (i < kSize) tile[i] = values[i];
  __syncthreads();
  if (i < kSize) values[i] = tile[kSize - 1 - i];
}

bool run(bool broken) {
  Guarded<int> values(kSize);
  for (int i = 0; i < kSize; ++i) values[i] = i;
  launch(broken ? reverse_kernel<true> : reverse_kernel<false>, {1, kThreads}, nullptr, values.get());
  bool right = true;
  for (int i = 0; i < kSize; ++i) right &= values[i] == kSize - 1 - i;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("exit_before_barrier", "threads beyond the problem return before a barrier", ({.report = true}),
             ladder::faults::run);

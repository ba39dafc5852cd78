#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 32;

// A flag that one thread sets is waited for at a barrier; in the broken kernel nobody sets it.
template <bool kBroken>
__global__ void wait_kernel(int* out) {
  LADDER_SHARED(int, ready, );
  if (threadIdx.x == 0) ready = 0;
  __syncthreads();
  while (__syncthreads_or(ready) == 0) {
    if (!kBroken && threadIdx.x == 0) ready = 1;
  }
  out[threadIdx.x] = 1;
}

bool run(bool broken) {
  Guarded<int> out(kThreads, -1, "out");
  launch(broken ? wait_kernel<true> : wait_kernel<false>, {1, kThreads}, nullptr, out.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) right &= out[i] == 1;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("endless_barriers", "a loop that passes barriers for ever",
             ({.report = true, .says = "endless_barriers.cu:14: the block has run for", .slow = true}),
             ladder::faults::run);

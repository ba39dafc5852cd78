#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 32;

// Rounds of a search that ends when any thread has found something; in the broken kernel none ever does.
template <bool kBroken>
__global__ void search_kernel(int* out) {
  int found = 0;
  while (__syncthreads_or(found) == 0) found = !kBroken && threadIdx.x == 7;
  out[threadIdx.x] = 1;
}

bool run(bool broken) {
  Guarded<int> out(kThreads, -1, "out");
  launch(broken ? search_kernel<true> : search_kernel<false>, {1, kThreads}, nullptr, out.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) right &= out[i] == 1;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("endless_barriers", "a loop that passes barriers for ever",
             ({.report = true, .says = "endless_barriers.cu:12: the block has run for", .slow = true}),
             ladder::faults::run);

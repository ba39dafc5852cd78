#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kBlocks = 8;

// Each block's sum to the workspace; one block adds them. Which one is last to arrive, only a counter knows: the block of
// the highest index may well be the first to run.
template <bool kBroken>
__global__ void sum_kernel(int* partial, unsigned* arrived, int* out) {
  partial[blockIdx.x] = static_cast<int>(blockIdx.x);
  __threadfence();
  const bool last = kBroken ? blockIdx.x == kBlocks - 1 : atomicAdd(arrived, 1) == kBlocks - 1;
  if (!last) return;
  __threadfence();
  int total = 0;
  for (int i = 0; i < kBlocks; ++i) total += partial[i];
  *out = total;
}

bool run(bool broken) {
  Guarded<int> partial(kBlocks, -1), out(1, -1);
  Guarded<unsigned> arrived(1, 0);
  launch(broken ? sum_kernel<true> : sum_kernel<false>, {kBlocks, 1}, nullptr, partial.get(), arrived.get(), out.get());
  return out[0] == kBlocks * (kBlocks - 1) / 2;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("last_block_too_early", "a block adds partial sums of other blocks that may not have run",
             ({.value = true}), ladder::faults::run);

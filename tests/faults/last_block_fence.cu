#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kBlocks = 8;

// The counter tells the last block that all partial sums are written, but only a fence before it that they can be seen.
template <bool kBroken>
__global__ void sum_kernel(int* partial, unsigned* arrived, int* out) {
  partial[blockIdx.x] = static_cast<int>(blockIdx.x);
  if (!kBroken) __threadfence();
  if (atomicAdd(arrived, 1) != kBlocks - 1) return;
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

LADDER_FAULT("last_block_fence", "no __threadfence between a partial sum and the counter that announces it",
             ({.order = true}), ladder::faults::run);

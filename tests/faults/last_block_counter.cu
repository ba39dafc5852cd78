#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kBlocks = 8;

// A counter that starts again at 0 after the last block is as the next launch needs it.
template <bool kBroken>
__global__ void sum_kernel(int value, int* partial, unsigned* arrived, int* out) {
  partial[blockIdx.x] = value;
  __threadfence();
  const unsigned before = kBroken ? atomicAdd(arrived, 1) : atomicInc(arrived, kBlocks - 1);
  if (before != kBlocks - 1) return;
  __threadfence();
  int total = 0;
  for (int i = 0; i < kBlocks; ++i) total += partial[i];
  *out = total;
}

bool run(bool broken) {
  Guarded<int> partial(kBlocks, -1), out(1, -1);
  Guarded<unsigned> arrived(1, 0);
  bool right = true;
  for (int value = 1; value <= 2; ++value) {
    launch(broken ? sum_kernel<true> : sum_kernel<false>, {kBlocks, 1}, nullptr, value, partial.get(), arrived.get(),
           out.get());
    right &= out[0] == value * kBlocks;
  }
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("last_block_counter", "the counter of finished blocks is not reset: the next launch has no last block",
             ({.value = true}), ladder::faults::run);

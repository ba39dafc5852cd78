#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kBlocks = 16;
constexpr int kThreads = 32;

template <bool kBroken>
__global__ void count_kernel(int* total) {
  const int warp_total = __popc(__ballot_sync(~0u, 1));
  if (threadIdx.x != 0) return;
  if (kBroken) {
    *total += warp_total;
  } else {
    atomicAdd(total, warp_total);
  }
}

bool run(bool broken) {
  Guarded<int> total(1, 0);
  launch(broken ? count_kernel<true> : count_kernel<false>, {kBlocks, kThreads}, nullptr, total.get());
  return total[0] == kBlocks * kThreads;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("cross_block_accumulation", "blocks add to one address without an atomic", ({.order = true}),
             ladder::faults::run);

#include "dev/ptx/cluster.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kBlocks = 4;
constexpr int kThreads = 32;
constexpr int kTurns = 3;

// out[turn][block][i] = the left neighbour's value of this turn
template <bool kBroken>
__global__ void shift_kernel(int* out) {
  LADDER_SHARED(int, slot, [kThreads]);
  const unsigned left = (ptx::cluster_rank() + kBlocks - 1) % kBlocks;
  const unsigned i = threadIdx.x;
  for (int turn = 0; turn < kTurns; ++turn) {
    slot[i] = static_cast<int>(1000 * turn + 100 * ptx::cluster_rank() + i);
    ptx::cluster_sync();
    out[(turn * kBlocks + blockIdx.x) * kThreads + i] = ptx::ld_shared_cluster(ptx::mapa(&slot[i], left));
    if (!kBroken || turn + 1 == kTurns) ptx::cluster_sync();
  }
}

bool run(bool broken) {
  Guarded<int> out(kTurns * kBlocks * kThreads, -1);
  launch(broken ? shift_kernel<true> : shift_kernel<false>, {kBlocks, kThreads, 0, kBlocks}, nullptr, out.get());
  bool right = true;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (int b = 0; b < kBlocks; ++b) {
      for (int i = 0; i < kThreads; ++i) {
        right &= out[(turn * kBlocks + b) * kThreads + i] == 1000 * turn + 100 * ((b + kBlocks - 1) % kBlocks) + i;
      }
    }
  }
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("cluster_barrier_before_reuse", "shared memory overwritten while other blocks of the cluster read it",
             ({.value = true, .order = true}), ladder::faults::run);

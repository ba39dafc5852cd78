#include "dev/ptx/cluster.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 32;

// The stores before a relaxed arrival need not be visible to other blocks after the wait.
template <bool kBroken>
__global__ void swap_kernel(int* out) {
  LADDER_SHARED(int, part, [kThreads]);
  const unsigned i = threadIdx.x;
  part[i] = static_cast<int>(blockIdx.x + i);
  if (kBroken) {
    ptx::cluster_arrive_relaxed();
  } else {
    ptx::cluster_arrive();
  }
  ptx::cluster_wait();
  out[blockIdx.x * kThreads + i] = ptx::ld_shared_cluster(ptx::mapa(&part[i], 1 - ptx::cluster_rank()));
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
}

bool run(bool broken) {
  Guarded<int> out(2 * kThreads, -1);
  launch(broken ? swap_kernel<true> : swap_kernel<false>, {2, kThreads, 0, 2}, nullptr, out.get());
  bool right = true;
  for (int i = 0; i < 2 * kThreads; ++i) right &= out[i] == 1 - i / kThreads + i % kThreads;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("cluster_relaxed_arrive", "a relaxed arrival where other blocks read what was stored before it",
             ({.order = true}), ladder::faults::run);

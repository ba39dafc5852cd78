#include "dev/ptx/cluster.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kBlocks = 2;
constexpr int kThreads = 64;

// One warp of a block meets __syncthreads where the rest of the cluster is at the cluster's barrier.
template <bool kBroken>
__global__ void diverge_kernel(int* out) {
  LADDER_SHARED(int, part, [kThreads]);
  part[threadIdx.x] = static_cast<int>(blockIdx.x + 1);
  if (kBroken && ptx::cluster_rank() == 1 && threadIdx.x < 32) __syncthreads();
  ptx::cluster_sync();
  out[blockIdx.x * kThreads + threadIdx.x] =
      ptx::ld_shared_cluster(ptx::mapa(&part[threadIdx.x], 1 - ptx::cluster_rank()));
  ptx::cluster_sync();
}

bool run(bool broken) {
  Guarded<int> out(kBlocks * kThreads, -1);
  launch(broken ? diverge_kernel<true> : diverge_kernel<false>, {kBlocks, kThreads, 0, kBlocks}, nullptr, out.get());
  bool right = true;
  for (int i = 0; i < kBlocks * kThreads; ++i) right &= out[i] == 2 - i / kThreads;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("cluster_divergent_barrier", "a warp waits in __syncthreads, the rest of the cluster in its barrier",
             ({.report = true}), ladder::faults::run);

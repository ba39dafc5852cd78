#include "dev/ptx/cluster.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kBlocks = 4;
constexpr int kThreads = 64;

// out[block][i] = the sum over the cluster's blocks r of (r + 1) i
template <bool kBroken>
__global__ void sum_kernel(int* out) {
  LADDER_SHARED(int, part, [kThreads]);
  ptx::cluster_sync();  // all blocks have started
  const unsigned i = threadIdx.x;
  part[i] = static_cast<int>((ptx::cluster_rank() + 1) * i);
  if (kBroken) {
    __syncthreads();
  } else {
    ptx::cluster_sync();
  }
  int sum = 0;
  for (unsigned r = 0; r < kBlocks; ++r) sum += ptx::ld_shared_cluster(ptx::mapa(&part[i], r));
  out[blockIdx.x * kThreads + i] = sum;
  ptx::cluster_sync();
}

bool run(bool broken) {
  Guarded<int> out(kBlocks * kThreads, -1);
  launch(broken ? sum_kernel<true> : sum_kernel<false>, {kBlocks, kThreads, 0, kBlocks}, nullptr, out.get());
  bool right = true;
  for (int i = 0; i < kBlocks * kThreads; ++i) right &= out[i] == 10 * (i % kThreads);
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("cluster_barrier_before_use",
             "__syncthreads where other blocks' shared memory is read: a cluster barrier "
             "is needed",
             ({.value = true, .order = true}), ladder::faults::run);

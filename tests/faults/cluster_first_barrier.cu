#include "dev/ptx/cluster.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kBlocks = 2;
constexpr int kThreads = 32;

// Every block stores into the other one's memory, which on a GPU is there once that block has started.
template <bool kBroken>
__global__ void push_kernel(int* out) {
  LADDER_SHARED(int, inbox, [kThreads]);
  const unsigned i = threadIdx.x;
  if (!kBroken) ptx::cluster_sync();
  ptx::st_shared_cluster(ptx::mapa(&inbox[i], 1 - ptx::cluster_rank()), static_cast<int>(blockIdx.x + i));
  ptx::cluster_sync();
  out[blockIdx.x * kThreads + i] = inbox[i];
}

bool run(bool broken) {
  Guarded<int> out(kBlocks * kThreads, -1);
  launch(broken ? push_kernel<true> : push_kernel<false>, {kBlocks, kThreads, 0, kBlocks}, nullptr, out.get());
  bool right = true;
  for (int i = 0; i < kBlocks * kThreads; ++i) right &= out[i] == 1 - i / kThreads + i % kThreads;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("cluster_first_barrier", "a store into a block that may not have started yet", ({.report = true}),
             ladder::faults::run);

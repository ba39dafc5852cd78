#include "dev/ptx/cluster.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kBlocks = 4;
constexpr int kThreads = 32;

// Hands a row to the right neighbour; the last block's is the first.
template <bool kBroken>
__global__ void right_kernel(int* out) {
  LADDER_SHARED(int, inbox, [kThreads]);
  const unsigned i = threadIdx.x;
  const unsigned right = kBroken ? ptx::cluster_rank() + 1 : (ptx::cluster_rank() + 1) % ptx::cluster_size();
  ptx::cluster_sync();
  ptx::st_shared_cluster(ptx::mapa(&inbox[i], right), static_cast<int>(100 * blockIdx.x + i));
  ptx::cluster_sync();
  out[blockIdx.x * kThreads + i] = inbox[i];
}

bool run(bool broken) {
  Guarded<int> out(kBlocks * kThreads, -1);
  launch(broken ? right_kernel<true> : right_kernel<false>, {kBlocks, kThreads, 0, kBlocks}, nullptr, out.get());
  bool right = true;
  for (int i = 0; i < kBlocks * kThreads; ++i) {
    right &= out[i] == 100 * ((i / kThreads + kBlocks - 1) % kBlocks) + i % kThreads;
  }
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("cluster_rank_out_of_range", "the last block's right neighbour has a rank that the cluster does not have",
             ({.report = true}), ladder::faults::run);

#include "dev/ptx/cluster.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kBlocks = 4;
constexpr int kThreads = 32;

// Block 0 reads what the others computed, and they do not stay until it has.
template <bool kBroken>
__global__ void collect_kernel(int* out) {
  LADDER_SHARED(int, part, [kThreads]);
  const unsigned i = threadIdx.x;
  part[i] = static_cast<int>(blockIdx.x * i);
  ptx::cluster_sync();
  if (ptx::cluster_rank() == 0) {
    int sum = 0;
    for (unsigned r = 0; r < kBlocks; ++r) sum += ptx::ld_shared_cluster(ptx::mapa(&part[i], r));
    out[i] = sum;
  }
  if (!kBroken) ptx::cluster_sync();
}

bool run(bool broken) {
  Guarded<int> out(kThreads, -1);
  launch(broken ? collect_kernel<true> : collect_kernel<false>, {kBlocks, kThreads, 0, kBlocks}, nullptr, out.get());
  bool right = true;
  for (int i = 0; i < kThreads; ++i) right &= out[i] == 6 * i;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("cluster_last_barrier", "a block ends while another one reads its shared memory", ({.report = true}),
             ladder::faults::run);

#include "dev/ptx/cluster.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kBlocks = 4;
constexpr int kNumRows = 3;  // the grid is rounded up to whole clusters
constexpr int kThreads = 32;

// out[row][i] = the sum over all rows of (row + 1) i
template <bool kBroken>
__global__ void rows_kernel(int* out) {
  LADDER_SHARED(int, part, [kThreads]);
  const unsigned i = threadIdx.x;
  const bool inside = blockIdx.x < kNumRows;
  if (kBroken && !inside) return;
  part[i] = inside ? static_cast<int>((blockIdx.x + 1) * i) : 0;
  ptx::cluster_sync();
  int sum = 0;
  for (unsigned r = 0; r < kNumRows; ++r) sum += ptx::ld_shared_cluster(ptx::mapa(&part[i], r));
  if (inside) out[blockIdx.x * kThreads + i] = sum;
  ptx::cluster_sync();
}

bool run(bool broken) {
  Guarded<int> out(kNumRows * kThreads, -1);
  launch(broken ? rows_kernel<true> : rows_kernel<false>, {kBlocks, kThreads, 0, kBlocks}, nullptr, out.get());
  bool right = true;
  for (int i = 0; i < kNumRows * kThreads; ++i) right &= out[i] == 6 * (i % kThreads);
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("cluster_exit_before_barrier", "blocks beyond the problem return before a cluster barrier",
             ({.report = true}), ladder::faults::run);

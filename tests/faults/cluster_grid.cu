#include "dev/ptx/cluster.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr unsigned kCluster = 4;
constexpr unsigned kRows = 6;

__global__ void ranks_kernel(int* out, unsigned rows) {
  if (threadIdx.x == 0 && blockIdx.x < rows) out[blockIdx.x] = static_cast<int>(ptx::cluster_rank());
}

bool run(bool broken) {
  Guarded<int> out(kRows, -1);
  const unsigned blocks = broken ? kRows : (kRows + kCluster - 1) / kCluster * kCluster;
  launch(ranks_kernel, {blocks, 32, 0, kCluster}, nullptr, out.get(), kRows);
  bool right = true;
  for (unsigned i = 0; i < kRows; ++i) right &= out[i] == static_cast<int>(i % kCluster);
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("cluster_grid", "a grid that is not a multiple of its clusters", ({.report = true}), ladder::faults::run);

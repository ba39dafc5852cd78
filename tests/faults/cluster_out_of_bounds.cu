#include "dev/ptx/cluster.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kBlocks = 2;
constexpr int kThreads = 32;

// out[block][i] = the neighbour's part shifted by one, of which the launch made room for kThreads + 1 elements, or not.
__global__ void shifted_kernel(bool has_room, int* out) {
  LADDER_DYN_SMEM(smem);
  auto* part = reinterpret_cast<int*>(smem);
  const unsigned i = threadIdx.x;
  part[i] = static_cast<int>(i);
  if (has_room && i == 0) part[kThreads] = 0;
  ptx::cluster_sync();
  const auto other = ptx::mapa(part, 1 - ptx::cluster_rank());
  const int next = ptx::ld_shared_cluster(other + static_cast<int>(i + 1));
  out[blockIdx.x * kThreads + i] = i + 1 < kThreads ? next : 0;
  ptx::cluster_sync();
}

bool run(bool broken) {
  Guarded<int> out(kBlocks * kThreads, -1);
  const std::size_t bytes = (kThreads + (broken ? 0 : 1)) * sizeof(int);
  launch(shifted_kernel, {kBlocks, kThreads, bytes, kBlocks}, nullptr, !broken, out.get());
  bool right = true;
  for (int i = 0; i < kBlocks * kThreads; ++i) right &= out[i] == (i + 1) % kThreads;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("cluster_out_of_bounds", "a read past the end of another block's dynamic shared memory",
             ({.report = true}), ladder::faults::run);

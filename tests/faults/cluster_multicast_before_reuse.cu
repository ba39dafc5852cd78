#include "dev/ptx/cluster.h"
#include "dev/ptx/tma.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kBlocks = 2;
constexpr int kThreads = 32;
constexpr int kTurns = 3;
constexpr int kRowFloats = 32;  // 128 bytes, one row a block

// out[block][turn][row][i]: each block copies its row of a turn to both, and waits for whoever reads: both, or itself alone.
template <bool kBroken>
__global__ void share_kernel(const __grid_constant__ ptx::TensorMap map, float* out) {
  LADDER_SHARED(ptx::Mbarrier, full, );
  LADDER_SHARED(ptx::Mbarrier, empty, );
  LADDER_DYN_SMEM(smem);
  const int rank = static_cast<int>(ptx::cluster_rank());
  const int i = static_cast<int>(threadIdx.x);
  const auto* const rows = reinterpret_cast<const float*>(smem);
  if (i == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::mbarrier_init(&empty, kBroken ? kThreads : kBlocks * kThreads);
    ptx::mbarrier_fence_init();
  }
  ptx::cluster_sync();
  for (int turn = 0; turn < kTurns; ++turn) {
    if (i == 0) {
      ptx::mbarrier_wait(&empty, (turn + 1) % 2);
      ptx::mbarrier_arrive_expect_tx(&full, kBlocks * 128);
      ptx::tma_load_multicast(smem + rank * 1024, map, &full, 0b11, 0, 8 * (turn * kBlocks + rank), 0);
    }
    ptx::mbarrier_wait(&full, turn % 2);
    for (int row = 0; row < kBlocks; ++row) {
      out[((rank * kTurns + turn) * kBlocks + row) * kThreads + i] = rows[row * 256 + i];
    }
    for (int block = 0; block < kBlocks; ++block) {
      if (!kBroken || block == rank) ptx::mbarrier_arrive_cluster_relaxed(ptx::mapa(&empty, block));
    }
  }
  ptx::cluster_sync();
}

bool run(bool broken) {
  constexpr int kRows = 8 * kTurns * kBlocks;  // every eighth is copied
  Guarded<float> in(kRows * kRowFloats, 0), out(kBlocks * kTurns * kBlocks * kThreads, -1);
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kRowFloats; ++i) in[row * kRowFloats + i] = static_cast<float>(100 * row + i);
  }
  const auto map = ptx::make_tensor_map(Dtype::tf32, in.get(), {kRowFloats, kRows, 1}, {kRowFloats, 1, 1});
  launch(broken ? share_kernel<true> : share_kernel<false>, {kBlocks, kThreads, kBlocks * 1024, kBlocks}, nullptr, map,
         out.get());
  bool right = true;
  for (int block = 0; block < kBlocks; ++block) {
    for (int row = 0; row < kTurns * kBlocks; ++row) {
      for (int i = 0; i < kThreads; ++i) {
        right &= out[(block * kTurns * kBlocks + row) * kThreads + i] == static_cast<float>(100 * 8 * row + i);
      }
    }
  }
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("cluster_multicast_before_reuse", "a copy to both blocks begins when one has read what was there",
             ({.value = true, .order = true}), ladder::faults::run);

#include "dev/ptx/tma.h"
#include "dev/ptx/wgmma.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kMultipliers = 128;
constexpr int kThreads = kMultipliers + 32;
constexpr int kN = 64;
constexpr int kTurns = 3;
constexpr int kTileBytes = 64 * 128;

// Squares one tile a turn, out of one stage: a warp copies, a warpgroup multiplies and hands the stage back, when its wgmma
// has read it or too early.
template <bool kBroken>
__global__ void square_kernel(const __grid_constant__ ptx::TensorMap map, float* out) {
  LADDER_DYN_SMEM(smem);
  LADDER_SHARED(ptx::Mbarrier, full, );
  LADDER_SHARED(ptx::Mbarrier, empty, );
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::mbarrier_init(&empty, 1);
    ptx::mbarrier_fence_init();
  }
  __syncthreads();
  if (threadIdx.x >= kMultipliers) {
    if (threadIdx.x != kMultipliers) return;
    for (int turn = 0; turn < kTurns; ++turn) {
      ptx::mbarrier_wait(&empty, (turn + 1) % 2);
      ptx::mbarrier_arrive_expect_tx(&full, kTileBytes);
      ptx::tma_load(smem, map, &full, 0, 64 * turn, 0);
    }
    return;
  }
  for (int turn = 0; turn < kTurns; ++turn) {
    ptx::mbarrier_wait(&full, turn % 2);
    float d[kN / 2];
    ptx::wgmma_fence();
    const std::uint64_t tile = ptx::wgmma_descriptor(smem, 1024);
    ptx::wgmma_m64<__nv_bfloat16, kN>(d, tile, tile, false);
    ptx::wgmma_commit();
    if (kBroken && threadIdx.x == 0) ptx::mbarrier_arrive(&empty);
    ptx::wgmma_wait<0>();
    ptx::warpgroup_fence_operand(d);
    if (!kBroken && threadIdx.x == 0) ptx::mbarrier_arrive(&empty);
    for (int i = 0; i < kN / 2; ++i) out[(turn * kMultipliers + threadIdx.x) * (kN / 2) + i] = d[i];
  }
}

bool run(bool broken) {
  Guarded<__nv_bfloat16> in(kTurns * 64 * 64, __float2bfloat16_rn(1));
  Guarded<float> out(kTurns * kMultipliers * kN / 2, -1);
  const auto map = ptx::make_tensor_map(Dtype::bf16, in.get(), {64, kTurns * 64, 1}, {64, 64, 1});
  launch(broken ? square_kernel<true> : square_kernel<false>, {1, kThreads, kTileBytes}, nullptr, map, out.get());
  bool right = true;
  for (int i = 0; i < kTurns * kMultipliers * kN / 2; ++i) right &= out[i] == 16;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("stage_released_before_wgmma_wait",
             "a stage is handed back before wgmma.wait_group, while it is still read",
             ({.order = true, .says = "no wgmma.wait_group for that multiplication"}), ladder::faults::run);

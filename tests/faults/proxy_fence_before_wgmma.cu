#include "dev/ptx/wgmma.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 128;
constexpr int kN = 64;
constexpr int kTileBytes = 64 * 128;

// Threads store both operands, all ones, and announce them by a barrier, which orders nothing for the async proxy of wgmma.
template <bool kBroken>
__global__ void multiply_kernel(float* out) {
  LADDER_DYN_SMEM(smem);
  for (int i = static_cast<int>(threadIdx.x); i < 2 * kTileBytes / 2; i += kThreads) {
    reinterpret_cast<__nv_bfloat16*>(smem)[i] = __float2bfloat16_rn(1.0f);
  }
  if (!kBroken) ptx::wgmma_fence_stores();
  __syncthreads();
  float d[kN / 2];
  ptx::wgmma_fence();
  ptx::wgmma_m64<__nv_bfloat16, kN>(d, ptx::wgmma_descriptor(smem, 1024),
                                    ptx::wgmma_descriptor(smem + kTileBytes, 1024), false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::warpgroup_fence_operand(d);
  for (int i = 0; i < kN / 2; ++i) out[threadIdx.x * (kN / 2) + i] = d[i];
}

bool run(bool broken) {
  Guarded<float> out(kThreads * kN / 2, -1);
  launch(broken ? multiply_kernel<true> : multiply_kernel<false>, {1, kThreads, 2 * kTileBytes}, nullptr, out.get());
  bool right = true;
  for (int i = 0; i < kThreads * kN / 2; ++i) right &= out[i] == 16;
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("proxy_fence_before_wgmma", "no fence.proxy.async between stores and the wgmma that reads them",
             ({.order = true, .says = "no fence.proxy.async by that thread"}), ladder::faults::run);

// Idea:   for large matrices: tiles of 128 x 256, whose rows two consumer warpgroups divide, taken in an order that keeps
//         their operands in L2. A step is 128 bytes of a row whatever the type, so that TF32 runs on the same code, also on
//         plain fp32 tensors where the problem allows it: the tensor core reads the upper 19 bits.
// Parent: v06.
// Why:    v06's tiles of 128 x 128, one a warpgroup, need 64 bytes from L2 a clock and SM at the tensor cores' full rate,
//         where L2 gives 48 to 60. Here 256 columns share a step of x: 48 bytes. Limiter left: power, as L2's bytes cost some,
//         and stores during which a block's tensor core idles. A cluster that loads a step once for two blocks would help.
// Needs:  sm_90a; rows of x and w of whole 16 bytes: k a multiple of 8, of 4 in TF32. Large m and n: other tiles are idle.

#include "dev/gemm/cooperative_tile.h"
#include "dev/gemm/wide_tile.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/setmaxnreg.h"
#include "dev/ptx/tma.h"
#include "dev/ptx/wgmma.h"

namespace ladder::gemm {
namespace {

constexpr int kBlockM = 128;
constexpr int kBlockN = 256;
constexpr int kBytesX = kBlockM * kStepRowBytes;
constexpr int kBytesW = kBlockN * kStepRowBytes;
constexpr int kWgmmaBytes = 32;  // of a row, in one instruction

template <class T>
using Tile = CooperativeTile<kBlockM, kBlockN, kBytesX + kBytesW, kConsumerThreads / 32 * kWarpStoreBytes<T>>;

// y [m, n] = x [m, k] times w [n, k] transposed.
__host__ __device__ Product product(const Problem& p) { return {.rows = p.m, .columns = p.n, .terms = p.k}; }

template <class T, class P>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    gemm_fprop_v07_kernel(Problem p, const __grid_constant__ ptx::TensorMap x_map,
                          const __grid_constant__ ptx::TensorMap w_map, Epilogue<T, P> epilogue, T* y) {
  using Tile = Tile<T>;
  LADDER_DYN_SMEM(smem);  // [stage]: 128 rows of x, then 256 of w, 128 bytes each
  if (threadIdx.x == kConsumerThreads) {
    ptx::tma_prefetch(x_map);
    ptx::tma_prefetch(w_map);
  }
  const StageBarriers<Tile> stages(smem);

  const Product c = product(p);
  const TileOrder<Tile> order(c);
  const int steps = ceil_div(c.terms, kTerms<T>);
  RingIndex<Tile::kStages> ring;

  if (threadIdx.x >= kConsumerThreads) {
    // The producer, one thread. A fresh barrier lets a wait for the parity before its first phase pass: parity ^ 1.
    ptx::warpgroup_reg_dealloc<kProducerRegisters>();
    if (threadIdx.x != kConsumerThreads) return;
    ptx::grid_dependency_wait();
    for (int tile = blockIdx.x; tile < order.count(); tile += gridDim.x) {
      const int2 first = order.offset_of(tile);
      for (int step = 0; step < steps; ++step, ring.advance()) {
        unsigned char* const to = smem + ring.stage * Tile::kStageBytes;
        ptx::Mbarrier* const full = stages.full + ring.stage;
        ptx::mbarrier_wait(stages.empty + ring.stage, ring.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(full, Tile::kStageBytes);
        ptx::tma_load(to, x_map, full, step * kTerms<T>, first.x, 0);
        ptx::tma_load(to + kBytesX, w_map, full, step * kTerms<T>, first.y, 0);
      }
    }
    ptx::grid_dependency_launch();
    return;
  }

  ptx::warpgroup_reg_alloc<kConsumerRegisters>();
  const int group = threadIdx.x / kGroupThreads;
  const int warp = threadIdx.x / 32;
  const bool elected = threadIdx.x % 32 == 0;
  unsigned char* const staging = smem + Tile::kStages * Tile::kStageBytes + warp * kWarpStoreBytes<T>;
  ptx::grid_dependency_wait();
  for (int tile = blockIdx.x; tile < order.count(); tile += gridDim.x) {
    const int2 first = order.offset_of(tile);
    float acc[kBlockN / 2];
    int previous = 0;  // the stage of the step before
    for (int step = 0; step < steps; ++step, ring.advance()) {
      const unsigned char* const x = smem + ring.stage * Tile::kStageBytes + group * Tile::kGroupRows * kStepRowBytes;
      const unsigned char* const w = smem + ring.stage * Tile::kStageBytes + kBytesX;
      ptx::mbarrier_wait(stages.full + ring.stage, ring.parity);
      ptx::wgmma_fence();
#pragma unroll
      for (int byte = 0; byte < kStepRowBytes; byte += kWgmmaBytes) {
        ptx::wgmma_m64<T, kBlockN>(acc, ptx::wgmma_descriptor(x + byte, 8 * kStepRowBytes),
                                   ptx::wgmma_descriptor(w + byte, 8 * kStepRowBytes), step > 0 || byte > 0);
      }
      ptx::wgmma_commit();
      // The stage that the multiplications before these have read is free.
      ptx::wgmma_wait<1>();
      if (elected && step > 0) ptx::mbarrier_arrive(stages.empty + previous);
      previous = ring.stage;
    }
    ptx::wgmma_wait<0>();
    ptx::warpgroup_fence_operand(acc);
    if (elected) ptx::mbarrier_arrive(stages.empty + previous);
    store_wide<kBlockN>(staging, acc, first.x + group * Tile::kGroupRows + warp % 4 * 16, first.y, c, epilogue, y);
  }
}

std::vector<KernelPlan<Fprop>> plans(const Problem& p) {
  const auto bind = [p](const Fprop::Tensors& t, void*) {
    return with_storage_type(p.dtype, [&](auto element) {
      using T = decltype(element);
      const int tiles = num_tiles<Tile<T>>(product(p));
      return with_parameter_type<T>(p.params16, [&](auto parameter) {
        using P = decltype(parameter);
        return bind_launch(gemm_fprop_v07_kernel<T, P>,
                           {.grid = static_cast<unsigned>(std::min(tiles, backend::device().num_sms)),
                            .block = kWgmmaThreads,
                            .dynamic_smem = Tile<T>::kSmemBytes,
                            .overlaps_previous = true},
                           p, map_of_steps<T>(p, t.x, p.m, kBlockM), map_of_steps<T>(p, t.w, p.n, kBlockN),
                           epilogue_of<T, P>(p, t), static_cast<T*>(t.y));
      });
    });
  };
  return {{.name = "128x256", .bind = bind}};
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Fprop,
               {.plans = ladder::gemm::plans,
                .plan_names = {"128x256"},
                .dtypes = {ladder::Dtype::f32, ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                .supports = ladder::gemm::wide_supports,
                .min_arch = 90,
                .arch_specific = true,
                .needs = "k a multiple of 8, of 4 in TF32; in fp32 allow_tf32"})

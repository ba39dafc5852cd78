// Idea:   Hopper's own path, with w read where it lies. The TMA brings steps of dy and w into a ring of stages, wgmma reads
//         them there, w as an MN-major operand, as its sums run down w's columns; blocks stay, and two consumer warpgroups
//         take tiles by turns.
// Parent: v05.
// Why:    as of fprop v06: v05's blocks load, multiply and store one after the other, at 1.2 to 1.6 times cuBLASLt's warm
//         time. Limiter: memory at 64x64; at 16x16 and 8x8 the first load and the last store.
// Needs:  sm_90a; n and k multiples of 8 (the TMA's strides are multiples of 16 bytes); bf16 or fp16.

#include "dev/gemm/output.h"
#include "dev/gemm/warp_store.h"
#include "dev/gemm/wgmma_tile.h"
#include "dev/ptx/setmaxnreg.h"
#include "dev/ptx/tma.h"
#include "dev/ptx/wgmma.h"

namespace ladder::gemm {
namespace {

constexpr int kBoxColumns = 64;  // of w, that a copy brings: a swizzled row
constexpr int kBoxBytes = kStepTerms16 * kStepRowBytes;

template <class T, int kRows, int kBlockN>
using Tile = PersistentTile<kRows, kBlockN, kRows * kStepRowBytes + kBlockN / kBoxColumns * kBoxBytes,
                            kRows / 64 * WarpStore<T, kBlockN>::kBytes>;

template <class T, class Tile>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    gemm_dgrad_v06_kernel(Problem p, const __grid_constant__ ptx::TensorMap dy_map,
                          const __grid_constant__ ptx::TensorMap w_map, Epilogue<T> epilogue, SideBySide<T> dx) {
  using Store = WarpStore<T, Tile::kBlockN>;
  constexpr int kParts = Tile::kRows / 64;
  constexpr int kBytesA = Tile::kRows * kStepRowBytes;
  LADDER_DYN_SMEM(smem);  // [stage]: rows of dy, boxes of w: 64 rows of 64 columns
  unsigned char* const stores = smem + Tile::kStages * Tile::kStageBytes;
  auto* const full = reinterpret_cast<ptx::Mbarrier*>(stores + Tile::kStoreBytes);
  ptx::Mbarrier* const empty = full + Tile::kStages;
  const PingPongOrder turns{empty + Tile::kStages};

  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::kStages; ++i) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, kGroupThreads / 32);
    }
    turns.init();
    ptx::mbarrier_fence_init();
  }
  __syncthreads();

  // Columns fastest: blocks that share rows of dy run together.
  const int tiles_k = ceil_div(p.k, Tile::kBlockN);
  const int tiles = ceil_div(p.m, Tile::kRows) * tiles_k;
  const int steps = ceil_div(p.n, kStepTerms16);

  if (threadIdx.x >= kConsumerThreads) {
    // The producer, one thread. A fresh barrier lets a wait for the parity before its first phase pass: parity ^ 1.
    ptx::warpgroup_reg_dealloc<kProducerRegisters>();
    if (threadIdx.x != kConsumerThreads) return;
    ptx::tma_prefetch(dy_map);
    ptx::tma_prefetch(w_map);
    int i = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const int m0 = tile / tiles_k * Tile::kRows;
      const int k0 = tile % tiles_k * Tile::kBlockN;
      for (int step = 0; step < steps; ++step, ++i) {
        const int stage = stage_of<Tile::kStages>(i);
        unsigned char* const to = smem + stage * Tile::kStageBytes;
        ptx::mbarrier_wait(empty + stage, parity_of<Tile::kStages>(i) ^ 1);
        ptx::mbarrier_arrive_expect_tx(full + stage, Tile::kStageBytes);
        ptx::tma_load(to, dy_map, full + stage, step * kStepTerms16, m0, 0);
        for (int box = 0; box < Tile::kBlockN / kBoxColumns; ++box) {
          ptx::tma_load(to + kBytesA + box * kBoxBytes, w_map, full + stage, k0 + box * kBoxColumns,
                        step * kStepTerms16, 0);
        }
      }
    }
    return;
  }

  ptx::warpgroup_reg_alloc<kConsumerRegisters>();
  const int group = threadIdx.x / kGroupThreads;
  const int warp = threadIdx.x / 32;
  const bool elected = threadIdx.x % 32 == 0;
  unsigned char* const staging = stores + warp * kParts * Store::kBytes;
  int turn = group;
  for (int tile = blockIdx.x + group * gridDim.x; tile < tiles; tile += kConsumerGroups * gridDim.x) {
    const int row0 = tile / tiles_k * Tile::kRows + warp % 4 * 16;
    const int k0 = tile % tiles_k * Tile::kBlockN;
    if (epilogue.residual) {
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        Store::fetch(staging + part * Store::kBytes, epilogue.residual, row0 + part * 64, k0, p.m, p.k);
    }
    ptx::cp_async_commit();

    float sum[kParts][Tile::kBlockN / 2];
    turns.wait(turn);
    for (int step = 0; step < steps; ++step) {
      const int stage = stage_of<Tile::kStages>(turn * steps + step);
      const unsigned char* const a = smem + stage * Tile::kStageBytes;
      ptx::mbarrier_wait(full + stage, parity_of<Tile::kStages>(turn * steps + step));
      ptx::wgmma_fence();
#pragma unroll
      for (int kk = 0; kk < kStepTerms16 / kWgmmaTerms; ++kk) {
        const auto b_operand =
            ptx::wgmma_descriptor_mn(a + kBytesA + kk * kWgmmaTerms * kStepRowBytes, 8 * kStepRowBytes, kBoxBytes);
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          const auto a_operand =
              ptx::wgmma_descriptor(a + part * 64 * kStepRowBytes + kk * kWgmmaTerms * 2, 8 * kStepRowBytes);
          ptx::wgmma_m64_b_mn<T, Tile::kBlockN>(sum[part], a_operand, b_operand, step > 0 || kk > 0);
        }
      }
      ptx::wgmma_commit();
      if (elected && step == steps - 1) turns.pass_on(turn);
      // The stage that the multiplications before these have read is free.
      ptx::wgmma_wait<1>();
      if (elected && step > 0) ptx::mbarrier_arrive(empty + stage_of<Tile::kStages>(turn * steps + step - 1));
    }
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int part = 0; part < kParts; ++part) ptx::warpgroup_fence_operand(sum[part]);
    if (elected) ptx::mbarrier_arrive(empty + stage_of<Tile::kStages>(turn * steps + steps - 1));

    ptx::cp_async_wait<0>();
    __syncwarp();
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      Store::store(staging + part * Store::kBytes, sum[part], nullptr, row0 + part * 64, k0, p.m, p.k, epilogue, dx);
    turn += kConsumerGroups;
  }
}

template <class Tile>
int num_tiles(const Problem& p) {
  return ceil_div(p.m, Tile::kRows) * ceil_div(p.k, Tile::kBlockN);
}

template <class Tile>
double cost(const Problem& p) {
  return persistent_ns<Tile>(num_tiles<Tile>(p), ceil_div(p.n, kStepTerms16));
}

template <class T, class Tile>
KernelPlan<Dgrad> tile_plan(const Problem& p, const char* name) {
  const auto bind = [p](const Dgrad::Tensors& t, void*) {
    const auto size = [](int value) { return static_cast<std::uint64_t>(value); };
    const auto dy_map = ptx::make_tensor_map(p.dtype, t.dy, {size(p.n), size(p.m), 1}, {kStepTerms16, Tile::kRows, 1});
    const auto w_map = ptx::make_tensor_map(p.dtype, t.w, {size(p.k), size(p.n), 1}, {kBoxColumns, kStepTerms16, 1});
    const int blocks = std::min(num_tiles<Tile>(p), backend::device().num_sms);
    return bind_launch(
        gemm_dgrad_v06_kernel<T, Tile>,
        {.grid = static_cast<unsigned>(blocks), .block = kWgmmaThreads, .dynamic_smem = Tile::kSmemBytes}, p, dy_map,
        w_map, epilogue_of<T>(t), output_of<T>(p, t));
  };
  return {.name = name, .bind = bind};
}

std::vector<KernelPlan<Dgrad>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Dgrad>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      const double costs[] = {cost<Tile<T, 128, 128>>(p), cost<Tile<T, 64, 128>>(p), cost<Tile<T, 128, 64>>(p),
                              cost<Tile<T, 64, 192>>(p), cost<Tile<T, 64, 64>>(p)};
      return with_default<Dgrad>(
          {tile_plan<T, Tile<T, 128, 128>>(p, "128x128"), tile_plan<T, Tile<T, 64, 128>>(p, "64x128"),
           tile_plan<T, Tile<T, 128, 64>>(p, "128x64"), tile_plan<T, Tile<T, 64, 192>>(p, "64x192"),
           tile_plan<T, Tile<T, 64, 64>>(p, "64x64")},
          static_cast<std::size_t>(std::ranges::min_element(costs) - costs));
    } else {
      return {};
    }
  });
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Dgrad, {.plans = ladder::gemm::plans,
                                     .plan_names = {"128x128", "64x128", "128x64", "64x192", "64x64"},
                                     .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                     .supports = ladder::gemm::rows_for_tma,
                                     .min_arch = 90,
                                     .arch_specific = true,
                                     .needs = "n and k multiples of 8"})

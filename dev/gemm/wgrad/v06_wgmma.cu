// Idea:   Hopper's own path. The TMA brings 64 rows of dy and x at a time into a ring of stages, and wgmma multiplies them in
//         place, both MN-major, as their terms run down the columns; rows are split over a block for each SM, and a second
//         kernel adds the partial sums, in order. Four warps sum dy's columns from the same stages for dbias.
// Parent: v05.
// Why:    v05 moves every element from shared memory to registers by ldmatrix, two to four times, and computes an address for
//         every 16 bytes: these instructions take longer than memory takes for the bytes. Limiter left: as v05's, partial
//         sums that are written and read once more, and the second launch.
// Needs:  sm_90a; n and k multiples of 8 (the TMA's strides are multiples of 16 bytes); bf16 or fp16. A workspace where the
//         rows are split. Of x in two parts, the first is a multiple of 64 columns.

// Shared memory, S = Tile::kStages:
//
//     S x kStageBytes   ring: stage = boxes of dy, then of x, each [64 rows][128 bytes]; swizzled by 128 bytes
//     S x 8 bytes       full[stage]: 1 arrival and kStageBytes by TMA
//     S x 8 bytes       empty[stage]: kConsumerWarps arrivals, kBiasWarps more in a block that sums dbias
//
// Warps, each over the block's steps of 64 rows:
//
//     kConsumerWarps   dw += dy' x, 64 features a warpgroup
//     1                producer, ahead by up to S steps
//     kBiasWarps       dbias += columns of dy, from the same stages, in blocks of the first columns of x; else idle

#include "dev/common/split_plan.h"
#include "dev/gemm/partial_sums.h"
#include "dev/gemm/wgmma_boxes.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/tma.h"
#include "dev/ptx/wgmma.h"

namespace ladder::gemm {
namespace {

template <class T, class P, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    gemm_wgrad_v06_kernel(Problem p, Split split, const __grid_constant__ MapsOfX x_maps,
                          const __grid_constant__ ptx::TensorMap dy_map, T* dw, P* dbias, float* partial) {
  LADDER_DYN_SMEM(smem);  // [stage]: boxes of dy, boxes of x: 64 rows of 64 columns
  auto* const full = reinterpret_cast<ptx::Mbarrier*>(smem + Tile::kStages * Tile::kStageBytes);
  ptx::Mbarrier* const empty = full + Tile::kStages;

  // Tiles fastest: blocks that share rows run together.
  const int tiles_k = ceil_div(p.k, Tile::kColumns);
  const int tiles_n = ceil_div(p.n, Tile::kFeatures);
  const int k0 = blockIdx.x % tiles_k * Tile::kColumns;
  const int n0 = blockIdx.x / tiles_k % tiles_n * Tile::kFeatures;
  const int split_idx = blockIdx.x / tiles_k / tiles_n;
  const int first = split_idx * split.units_per_split;
  const int count = min(split.units_per_split, ceil_div(p.m, kStepRows) - first);
  const bool accumulates_bias_gradient = dbias && k0 == 0;

  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::kStages; ++i) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, Tile::kConsumerWarps + (accumulates_bias_gradient ? kBiasWarps : 0));
    }
    ptx::mbarrier_fence_init();
  }
  if (threadIdx.x == Tile::kConsumerWarps * 32) {
    x_maps.prefetch();
    ptx::tma_prefetch(dy_map);
  }
  __syncthreads();
  ptx::grid_dependency_wait();

  const bool single_split = split.splits == 1;
  const long long weights = static_cast<long long>(p.n) * p.k;
  float* const partial_row = partial + split_idx * (padded(weights) + padded(dbias ? p.n : 0));
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;

  if (warp == Tile::kConsumerWarps) {
    // The producer, one thread. A fresh barrier lets a wait for the parity before its first phase pass: parity ^ 1.
    if (lane != 0) return;
    for (int i = 0; i < count; ++i) {
      const int stage = stage_of<Tile::kStages>(i);
      unsigned char* const to = smem + stage * Tile::kStageBytes;
      const int row = (first + i) * kStepRows;
      ptx::mbarrier_wait(empty + stage, parity_of<Tile::kStages>(i) ^ 1);
      ptx::mbarrier_arrive_expect_tx(full + stage, Tile::kStageBytes);
      for (int box = 0; box < Tile::kGroups; ++box)
        ptx::tma_load(to + box * kBoxBytes, dy_map, full + stage, n0 + box * kBoxColumns, row, 0);
      for (int box = 0; box < Tile::kColumns / kBoxColumns; ++box)
        x_maps.load(to + (Tile::kGroups + box) * kBoxBytes, full + stage, k0 + box * kBoxColumns, row);
    }
    ptx::grid_dependency_launch();
    return;
  }

  if (warp > Tile::kConsumerWarps) {
    if (!accumulates_bias_gradient) return;
    const int bias_warp = warp - Tile::kConsumerWarps - 1;
    float bias_sum[Tile::kGroups][2] = {};
    for (int i = 0; i < count; ++i) {
      const int stage = stage_of<Tile::kStages>(i);
      ptx::mbarrier_wait(full + stage, parity_of<Tile::kStages>(i));
#pragma unroll
      for (int box = 0; box < Tile::kGroups; ++box)
        add_box_columns<T>(bias_sum[box], smem + stage * Tile::kStageBytes + box * kBoxBytes, bias_warp);
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(empty + stage);
    }
    void* const bias_to = single_split ? static_cast<void*>(dbias) : partial_row + padded(weights);
#pragma unroll
    for (int box = 0; box < Tile::kGroups; ++box) {
      add_column_lanes(bias_sum[box]);
      const int n = n0 + box * kBoxColumns + bias_warp * 16 + lane * 2;
      if (lane < 8 && n < p.n) store_gradient_pair<P>(bias_to, n, bias_sum[box][0], bias_sum[box][1], single_split);
    }
    return;
  }

  const int group = warp / 4;
  float acc[Tile::kColumns / 2];
  for (int i = 0; i < count; ++i) {
    const int stage = stage_of<Tile::kStages>(i);
    const unsigned char* const a = smem + stage * Tile::kStageBytes + group * kBoxBytes;
    const unsigned char* const b = smem + stage * Tile::kStageBytes + Tile::kGroups * kBoxBytes;
    ptx::mbarrier_wait(full + stage, parity_of<Tile::kStages>(i));
    ptx::wgmma_fence();
#pragma unroll
    for (int row = 0; row < kStepRows; row += kWgmmaTerms) {
      const auto a_operand = ptx::wgmma_descriptor_mn(a + row * kStepRowBytes, 8 * kStepRowBytes, kBoxBytes);
      const auto b_operand = ptx::wgmma_descriptor_mn(b + row * kStepRowBytes, 8 * kStepRowBytes, kBoxBytes);
      ptx::wgmma_m64_mn<T, Tile::kColumns>(acc, a_operand, b_operand, i > 0 || row > 0);
    }
    ptx::wgmma_commit();
    // The stage that the multiplications before these have read is free.
    ptx::wgmma_wait<1>();
    if (lane == 0 && i > 0) ptx::mbarrier_arrive(empty + stage_of<Tile::kStages>(i - 1));
  }
  ptx::wgmma_wait<0>();
  ptx::warpgroup_fence_operand(acc);

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int n = n0 + warp * 16 + lane / 4 + 8 * half;
    if (n >= p.n) continue;
#pragma unroll
    for (int j = 0; j < Tile::kColumns / 8; ++j) {
      const int k = k0 + 8 * j + lane % 4 * 2;
      if (k >= p.k) continue;
      const float pair[2] = {acc[4 * j + 2 * half], acc[4 * j + 2 * half + 1]};
      const long long index = static_cast<long long>(n) * p.k + k;
      if (single_split) {
        unsigned rounded[1];
        pack<T, 1>(pair, rounded);
        *reinterpret_cast<unsigned*>(dw + index) = rounded[0];
      } else {
        *reinterpret_cast<float2*>(partial_row + index) = {pair[0], pair[1]};
      }
    }
  }
}

template <class Tile>
SplitPlan plan_tile(const Problem& p) {
  return plan_split(double(p.n) * p.k, ceil_div(p.m, kStepRows), Tile::count(p),
                    {.unit_ns = Tile::kStepNs,
                     .finish_ns = Tile::kFeatures * Tile::kColumns * 4 / 60.0,
                     .start_ns = 2000,
                     .blocks_per_sm = 1});
}

template <class T, class Tile>
KernelPlan<Wgrad> tile_plan(const Problem& p, const char* name, Split split) {
  const long long count = static_cast<long long>(p.n) * p.k;
  const int bias_count = p.bias ? p.n : 0;
  const auto bind = [p, split, count, bias_count](const Wgrad::Tensors& t, void* workspace) {
    auto* const partial = static_cast<float*>(workspace);
    auto* const dw = static_cast<T*>(t.dw);
    const auto size = [](int value) { return static_cast<std::uint64_t>(value); };
    const MapsOfX x_maps = maps_of_x(p, t.x, t.x_rest, kStepRows);
    const auto dy_map = ptx::make_tensor_map(p.dtype, t.dy, {size(p.n), size(p.m), 1}, {kBoxColumns, kStepRows, 1});
    const LaunchConfig config = {.grid = static_cast<unsigned>(Tile::count(p)) * split.splits,
                                 .block = Tile::kThreads,
                                 .dynamic_smem = Tile::kSmemBytes,
                                 .overlaps_previous = true};
    return with_parameter_type<T>(p.params16, [&](auto parameter) {
      using P = decltype(parameter);
      P* const dbias = typed<P>(t.dbias);
      return with_reduce(
          split, bind_launch(gemm_wgrad_v06_kernel<T, P, Tile>, config, p, split, x_maps, dy_map, dw, dbias, partial),
          partial, count, p.k, Epilogue<T, P>{}, dw, bias_count, dbias);
    });
  };
  return {.name = name, .workspace_bytes = partial_bytes(split, count, bias_count), .bind = bind};
}

using Small = BoxTile<1, 64>;

std::vector<KernelPlan<Wgrad>> plans(const Problem& p) {
  const SplitPlan choices[] = {plan_tile<BoxTile<2, 192>>(p), plan_tile<BoxTile<2, 128>>(p),
                               plan_tile<BoxTile<1, 192>>(p), plan_tile<BoxTile<1, 128>>(p), plan_tile<Small>(p)};
  const int steps = ceil_div(p.m, kStepRows);
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Wgrad>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      return with_default<Wgrad>(
          {tile_plan<T, BoxTile<2, 192>>(p, "128x192", choices[0].split),
           tile_plan<T, BoxTile<2, 128>>(p, "128x128", choices[1].split),
           tile_plan<T, BoxTile<1, 192>>(p, "64x192", choices[2].split),
           tile_plan<T, BoxTile<1, 128>>(p, "64x128", choices[3].split),
           tile_plan<T, Small>(p, "64x64", choices[4].split), tile_plan<T, Small>(p, "64x64 in two", halves(steps)),
           tile_plan<T, Small>(p, "64x64 in one", ladder::unsplit(steps))},
          fastest(choices));
    } else {
      return {};
    }
  });
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Wgrad,
               {.plans = ladder::gemm::plans,
                .plan_names = {"128x192", "128x128", "64x192", "64x128", "64x64", "64x64 in two", "64x64 in one"},
                .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                .supports = ladder::gemm::rows_in_boxes,
                .min_arch = 90,
                .arch_specific = true,
                .needs = "n and k multiples of 8"})

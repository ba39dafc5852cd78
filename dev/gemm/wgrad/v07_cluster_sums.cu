// Idea:   the blocks that split a tile's rows are a cluster, and add up in each other's shared memory: each takes a share of
//         the tile, adds what all of them have of it, in the order of their ranks, and stores it once. Where more blocks than
//         a cluster split the rows, clusters write partial sums, an eighth of v06's.
// Parent: v06.
// Why:    at 8x8 and 16x16 v06's partial sums are 2 to 12 MB, written, read by a second kernel and launched for: a large
//         part of the time. A cluster of eight leaves one launch and no partial sums where dw has a dozen tiles. Limiter
//         left: clusters of eight leave a dozen SMs idle, and the last block's rows are waited for by all.
// Needs:  sm_90a; n and k multiples of 8 (the TMA's strides are multiples of 16 bytes); bf16 or fp16. A workspace where
//         more than a cluster split the rows. Of x in two parts, the first is a multiple of 64 columns.

#include "dev/common/cluster_split.h"
#include "dev/common/cluster_sums.h"
#include "dev/common/vectors.h"
#include "dev/gemm/partial_sums.h"
#include "dev/gemm/wgmma_boxes.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/tma.h"
#include "dev/ptx/wgmma.h"

namespace ladder::gemm {
namespace {

// The accumulators take the stages' place: rows of features, then dbias.
template <int kGroups, int kColumns>
struct Tile : BoxTile<kGroups, kColumns> {
  using Base = BoxTile<kGroups, kColumns>;
  static constexpr int kPitch = kSumsPitch<kColumns>;
  static constexpr int kSums = Base::kFeatures * kPitch;
  static_assert((kSums + Base::kFeatures) * 4 <= Base::kStages * Base::kStageBytes, "accumulators fit the stages");
};

template <class T, class P, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    gemm_wgrad_v07_kernel(Problem p, ClusterSplit split, const __grid_constant__ MapsOfX x_maps,
                          const __grid_constant__ ptx::TensorMap dy_map, T* dw, P* dbias, float* partial) {
  LADDER_DYN_SMEM(smem);  // [stage]: boxes of dy, boxes of x: 64 rows of 64 columns
  auto* const full = reinterpret_cast<ptx::Mbarrier*>(smem + Tile::kStages * Tile::kStageBytes);
  ptx::Mbarrier* const empty = full + Tile::kStages;

  // A cluster's ranks fastest, then tiles: blocks that share rows run together.
  const int tiles_k = ceil_div(p.k, Tile::kColumns);
  const int tiles_n = ceil_div(p.n, Tile::kFeatures);
  const int rank = blockIdx.x % split.ranks;
  const int tile = blockIdx.x / split.ranks;
  const int k0 = tile % tiles_k * Tile::kColumns;
  const int n0 = tile / tiles_k % tiles_n * Tile::kFeatures;
  const int cluster_idx = tile / tiles_k / tiles_n;
  const int first = (cluster_idx * split.ranks + rank) * split.units_per_block;
  const int count = min(split.units_per_block, ceil_div(p.m, kStepRows) - first);  // 0 or less: nothing to add
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

  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const bool consumes = warp < Tile::kConsumerWarps;
  const int bias_warp = warp - Tile::kConsumerWarps - 1;
  float acc[Tile::kColumns / 2];
  float bias_sum[Tile::kGroups][2] = {};

  if (consumes) {
    const int group = warp / 4;
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
  } else if (bias_warp < 0) {
    // The producer, one thread. A fresh barrier lets a wait for the parity before its first phase pass: parity ^ 1.
    if (lane == 0) {
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
    }
    ptx::grid_dependency_launch();
    __syncwarp();  // the barriers below are for whole warps
  } else if (accumulates_bias_gradient) {
    for (int i = 0; i < count; ++i) {
      const int stage = stage_of<Tile::kStages>(i);
      ptx::mbarrier_wait(full + stage, parity_of<Tile::kStages>(i));
#pragma unroll
      for (int box = 0; box < Tile::kGroups; ++box)
        add_box_columns<T>(bias_sum[box], smem + stage * Tile::kStageBytes + box * kBoxBytes, bias_warp);
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(empty + stage);
    }
#pragma unroll
    for (int box = 0; box < Tile::kGroups; ++box) add_column_lanes(bias_sum[box]);
  }

  // All have left the stages: the accumulators take their place.
  __syncthreads();
  auto* const sums = reinterpret_cast<float*>(smem);
  float* const bias_sums = sums + Tile::kSums;
  if (consumes) {
    put_wgmma_sums<Tile::kColumns>(sums, acc, warp * 16, count > 0);
  } else if (bias_warp >= 0 && lane < 8) {
#pragma unroll
    for (int box = 0; box < Tile::kGroups; ++box) {
      *reinterpret_cast<float2*>(bias_sums + box * kBoxColumns + bias_warp * 16 + lane * 2) = {bias_sum[box][0],
                                                                                               bias_sum[box][1]};
    }
  }
  ptx::cluster_sync();

  const bool single_split = split.clusters == 1;
  const long long weights = static_cast<long long>(p.n) * p.k;
  float* const partial_row = partial + cluster_idx * (padded(weights) + padded(dbias ? p.n : 0));
  constexpr int kQuadsPerRow = Tile::kColumns / 4;
  for (int i = threadIdx.x + rank * Tile::kThreads; i < Tile::kFeatures * kQuadsPerRow;
       i += split.ranks * Tile::kThreads) {
    const int n = n0 + i / kQuadsPerRow;
    const int k = k0 + i % kQuadsPerRow * 4;
    if (n >= p.n || k >= p.k) continue;
    auto* const mine = reinterpret_cast<float4*>(sums + i / kQuadsPerRow * Tile::kPitch + i % kQuadsPerRow * 4);
    const float4 v = sum_over_cluster(mine, split.ranks);
    const long long index = static_cast<long long>(n) * p.k + k;
    if (single_split) {
      unsigned words[2];
      pack<T, 2>({v.x, v.y, v.z, v.w}, words);
      *reinterpret_cast<uint2*>(dw + index) = {words[0], words[1]};
    } else {
      *reinterpret_cast<float4*>(partial_row + index) = v;
    }
  }
  if (accumulates_bias_gradient && rank == 0) {
    void* const bias_to = single_split ? static_cast<void*>(dbias) : partial_row + padded(weights);
    for (int i = threadIdx.x; i < Tile::kFeatures && n0 + i < p.n; i += Tile::kThreads)
      store_gradient<P>(bias_to, n0 + i, sum_over_cluster(bias_sums + i, split.ranks), single_split);
  }
  // No block ends before the others have read its shared memory.
  ptx::cluster_sync();
}

// Estimates, of an H200: distributed shared memory gives half of the L2's rate.
template <class Tile>
ClusterPlan plan_tile(const Problem& p) {
  return plan_cluster_split(ceil_div(p.m, kStepRows), Tile::count(p),
                            {.unit_ns = Tile::kStepNs,
                             .start_ns = 2000,
                             .exchange_ns = Tile::kFeatures * Tile::kColumns * 4 / 30.0,
                             .partials_ns = 8.0 * p.n * p.k / kPartialBytesPerNs,
                             .second_ns = kReduceNs});
}

template <class T, class Tile>
KernelPlan<Wgrad> tile_plan(const Problem& p, const char* name, ClusterSplit split) {
  const long long count = static_cast<long long>(p.n) * p.k;
  const int bias_count = p.bias ? p.n : 0;
  const Split partials{.splits = split.clusters};
  const auto bind = [p, split, partials, count, bias_count](const Wgrad::Tensors& t, void* workspace) {
    auto* const partial = static_cast<float*>(workspace);
    auto* const dw = static_cast<T*>(t.dw);
    const auto size = [](int value) { return static_cast<std::uint64_t>(value); };
    const MapsOfX x_maps = maps_of_x(p, t.x, t.x_rest, kStepRows);
    const auto dy_map = ptx::make_tensor_map(p.dtype, t.dy, {size(p.n), size(p.m), 1}, {kBoxColumns, kStepRows, 1});
    const LaunchConfig config = {.grid = static_cast<unsigned>(Tile::count(p) * split.clusters * split.ranks),
                                 .block = Tile::kThreads,
                                 .dynamic_smem = Tile::kSmemBytes,
                                 .cluster = static_cast<unsigned>(split.ranks),
                                 .overlaps_previous = true};
    return with_parameter_type<T>(p.params16, [&](auto parameter) {
      using P = decltype(parameter);
      P* const dbias = typed<P>(t.dbias);
      return with_reduce(
          partials,
          bind_launch(gemm_wgrad_v07_kernel<T, P, Tile>, config, p, split, x_maps, dy_map, dw, dbias, partial), partial,
          count, p.k, Epilogue<T, P>{}, dw, bias_count, dbias);
    });
  };
  return {.name = name, .workspace_bytes = partial_bytes(partials, count, bias_count), .bind = bind};
}

using Small = Tile<1, 64>;

std::vector<KernelPlan<Wgrad>> plans(const Problem& p) {
  const ClusterPlan choices[] = {plan_tile<Tile<2, 192>>(p), plan_tile<Tile<2, 128>>(p), plan_tile<Tile<1, 192>>(p),
                                 plan_tile<Tile<1, 128>>(p), plan_tile<Small>(p)};
  const auto fastest = std::ranges::min_element(choices, {}, &ClusterPlan::ns) - choices;
  const int steps = ceil_div(p.m, kStepRows);
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Wgrad>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      return with_default<Wgrad>(
          {tile_plan<T, Tile<2, 192>>(p, "128x192", choices[0].split),
           tile_plan<T, Tile<2, 128>>(p, "128x128", choices[1].split),
           tile_plan<T, Tile<1, 192>>(p, "64x192", choices[2].split),
           tile_plan<T, Tile<1, 128>>(p, "64x128", choices[3].split), tile_plan<T, Small>(p, "64x64", choices[4].split),
           tile_plan<T, Small>(p, "64x64 in one", {1, 1, steps}),
           tile_plan<T, Small>(p, "64x64 in two clusters", {2, 2, ceil_div(steps, 4)})},
          static_cast<std::size_t>(fastest));
    } else {
      return {};
    }
  });
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Wgrad, {.plans = ladder::gemm::plans,
                                     .plan_names = {"128x192", "128x128", "64x192", "64x128", "64x64", "64x64 in one",
                                                    "64x64 in two clusters"},
                                     .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                     .supports = ladder::gemm::rows_in_boxes,
                                     .min_arch = 90,
                                     .arch_specific = true,
                                     .needs = "n and k multiples of 8"})

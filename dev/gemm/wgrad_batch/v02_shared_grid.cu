// Idea:   the tiles of all layers are one grid, each a cluster as in wgrad's v07: a few blocks that split the rows and add up
//         in each other's shared memory. As many blocks to a cluster as fill the card once.
// Parent: v01 here; wgrad v07 for the tile.
// Why:    at 8x8 and 16x16 a layer's dw has a dozen tiles, so that v07 cuts its rows into runs of 4 to 20 steps, and start,
//         exchange and tail are a large part of each launch. Five or six layers have tiles for most SMs: one start, longer
//         runs, clusters of two or four, and no partial sums in memory. Limiter left: whole waves of whole clusters.
// Needs:  sm_90a; n and k multiples of 8 (the TMA's strides are multiples of 16 bytes); bf16 or fp16. Of x in two parts, a
//         multiple of 64 columns in the first.

#include <algorithm>

#include "core/occupancy.h"
#include "dev/common/cluster_sums.h"
#include "dev/common/vectors.h"
#include "dev/gemm/wgmma_boxes.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/tma.h"
#include "dev/ptx/wgmma.h"

namespace ladder::gemm {
namespace {

template <class T>
struct Layers {
  MapsOfX x[kMaxBatch];
  ptx::TensorMap dy[kMaxBatch];
  T* dw[kMaxBatch];
  float* dbias[kMaxBatch];
};

// The accumulators take the stages' place: rows of features, then dbias.
template <int kGroups, int kColumns>
struct Tile : BoxTile<kGroups, kColumns> {
  using Base = BoxTile<kGroups, kColumns>;
  static constexpr int kPitch = kSumsPitch<kColumns>;
  static constexpr int kSums = Base::kFeatures * kPitch;
  static_assert((kSums + Base::kFeatures) * 4 <= Base::kStages * Base::kStageBytes, "accumulators fit the stages");
};

// A cluster of `ranks` blocks has one tile of one layer; each block multiplies `steps_per_block` steps of 64 rows, the last ones fewer.
template <class T, class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    gemm_wgrad_batch_v02_kernel(Problem p, int ranks, int steps_per_block, const __grid_constant__ Layers<T> layers) {
  LADDER_DYN_SMEM(smem);  // [stage]: boxes of dy, boxes of x: 64 rows of 64 columns
  auto* const full = reinterpret_cast<ptx::Mbarrier*>(smem + Tile::kStages * Tile::kStageBytes);
  ptx::Mbarrier* const empty = full + Tile::kStages;

  const int tiles_k = ceil_div(p.k, Tile::kColumns);
  const int tiles_n = ceil_div(p.n, Tile::kFeatures);
  const int rank = blockIdx.x % ranks;
  const int tile = blockIdx.x / ranks;
  const int k0 = tile % tiles_k * Tile::kColumns;
  const int n0 = tile / tiles_k % tiles_n * Tile::kFeatures;
  const int layer = tile / tiles_k / tiles_n;
  const int first = rank * steps_per_block;
  const int count = min(steps_per_block, ceil_div(p.m, kStepRows) - first);  // 0 or less: nothing to add
  const bool accumulates_bias_gradient = p.bias && k0 == 0;

  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const bool consumes = warp < Tile::kConsumerWarps;
  const int bias_warp = warp - Tile::kConsumerWarps - 1;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::kStages; ++i) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, Tile::kConsumerWarps + (accumulates_bias_gradient ? kBiasWarps : 0));
    }
    ptx::mbarrier_fence_init();
  }
  if (threadIdx.x == Tile::kConsumerWarps * 32) {
    layers.x[layer].prefetch();
    ptx::tma_prefetch(layers.dy[layer]);
  }
  __syncthreads();
  ptx::grid_dependency_wait();

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
      const ptx::TensorMap& dy_map = layers.dy[layer];
      const MapsOfX& x_maps = layers.x[layer];
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
  ptx::grid_dependency_launch();
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

  T* const dw = layers.dw[layer];
  constexpr int kQuadsPerRow = Tile::kColumns / 4;
  for (int i = threadIdx.x + rank * Tile::kThreads; i < Tile::kFeatures * kQuadsPerRow; i += ranks * Tile::kThreads) {
    const int n = n0 + i / kQuadsPerRow;
    const int k = k0 + i % kQuadsPerRow * 4;
    if (n >= p.n || k >= p.k) continue;
    auto* const mine = reinterpret_cast<float4*>(sums + i / kQuadsPerRow * Tile::kPitch + i % kQuadsPerRow * 4);
    const float4 v = sum_over_cluster(mine, ranks);
    unsigned words[2];
    pack<T, 2>({v.x, v.y, v.z, v.w}, words);
    *reinterpret_cast<uint2*>(dw + static_cast<long long>(n) * p.k + k) = {words[0], words[1]};
  }
  if (accumulates_bias_gradient && rank == 0) {
    for (int i = threadIdx.x; i < Tile::kFeatures && n0 + i < p.n; i += Tile::kThreads)
      layers.dbias[layer][n0 + i] = sum_over_cluster(bias_sums + i, ranks);
  }
  // No block ends before the others have read its shared memory.
  ptx::cluster_sync();
}

template <class T, class Tile>
LaunchConfig config_of(const Problem& p, int ranks) {
  return {.grid = static_cast<unsigned>(p.batch * Tile::count(p) * ranks),
          .block = Tile::kThreads,
          .dynamic_smem = Tile::kSmemBytes,
          .cluster = static_cast<unsigned>(ranks),
          .overlaps_previous = true};
}

struct Choice {
  int ranks = 1;
  double ns = 0;  // estimated
};

// The cluster that takes the least time: whole waves of as many as the card runs at once.
template <class T, class Tile>
Choice choose(const Problem& p) {
  constexpr double kStartNs = 2000;
  constexpr double kExchangeNs = 1000 + Tile::kFeatures * Tile::kColumns * 4 / 30.0;  // at half of the L2's rate
  const int steps = ceil_div(p.m, kStepRows);
  Choice best;
  for (int ranks = 1; ranks <= std::min(kMaxClusterBlocks, steps); ++ranks) {
    const int at_once = resident_clusters(gemm_wgrad_batch_v02_kernel<T, Tile>, config_of<T, Tile>(p, ranks));
    if (at_once == 0) continue;
    const double ns = ceil_div(p.batch * Tile::count(p), at_once) *
                      (kStartNs + ceil_div(steps, ranks) * Tile::kStepNs + (ranks > 1 ? kExchangeNs : 0));
    if (best.ns == 0 || ns < best.ns) best = {ranks, ns};
  }
  return best;
}

template <class T, class Tile>
KernelPlan<WgradBatch> tile_plan(const Problem& p, const char* name, int ranks) {
  const auto bind = [p, ranks](const WgradBatch::Tensors& t, void*) {
    const auto size = [](int value) { return static_cast<std::uint64_t>(value); };
    Layers<T> layers{};
    for (int i = 0; i < p.batch; ++i) {
      layers.x[i] = maps_of_x(p, t.x[i], t.x_rest[i], kStepRows);
      layers.dy[i] = ptx::make_tensor_map(p.dtype, t.dy[i], {size(p.n), size(p.m), 1}, {kBoxColumns, kStepRows, 1});
      layers.dw[i] = static_cast<T*>(t.dw[i]);
      layers.dbias[i] = t.dbias[i];
    }
    return bind_launch(gemm_wgrad_batch_v02_kernel<T, Tile>, config_of<T, Tile>(p, ranks), p, ranks,
                       ceil_div(ceil_div(p.m, kStepRows), ranks), layers);
  };
  return {.name = name, .bind = bind};
}

std::vector<KernelPlan<WgradBatch>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<WgradBatch>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      const Choice choices[] = {choose<T, Tile<2, 192>>(p), choose<T, Tile<2, 128>>(p), choose<T, Tile<1, 192>>(p),
                                choose<T, Tile<1, 128>>(p), choose<T, Tile<1, 64>>(p)};
      const auto fastest = std::ranges::min_element(choices, {}, &Choice::ns) - choices;
      return with_default<WgradBatch>({tile_plan<T, Tile<2, 192>>(p, "128x192", choices[0].ranks),
                                       tile_plan<T, Tile<2, 128>>(p, "128x128", choices[1].ranks),
                                       tile_plan<T, Tile<1, 192>>(p, "64x192", choices[2].ranks),
                                       tile_plan<T, Tile<1, 128>>(p, "64x128", choices[3].ranks),
                                       tile_plan<T, Tile<1, 64>>(p, "64x64", choices[4].ranks)},
                                      static_cast<std::size_t>(fastest));
    } else {
      return {};
    }
  });
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::WgradBatch, {.plans = ladder::gemm::plans,
                                          .plan_names = {"128x192", "128x128", "64x192", "64x128", "64x64"},
                                          .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                          .supports = ladder::gemm::rows_in_boxes,
                                          .min_arch = 90,
                                          .arch_specific = true,
                                          .needs = "n and k multiples of 8"})

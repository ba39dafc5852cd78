// Idea:   the blocks that split a tile's patches are a cluster, and add up in each other's shared memory: each takes a part of
//         the tile, adds what all of them have of it, in the order of their ranks, and stores it once. Where more blocks than
//         a cluster split the patches, clusters write partial sums, up to an eighth of v07's.
// Parent: v07.
// Why:    v07 writes partial sums even where a tile has one block or two, reads them in a second kernel, and launches that:
//         much of the time at 8x8, 256 -> 256. A cluster of two leaves nothing of it there, one of four at 16x16. Limiter
//         left: at 8x8 the fill of shared memory from L2, as dy crosses three times; clusters of four and eight leave a
//         dozen SMs idle.
// Needs:  as v07: sm_90a; c and k multiples of 16 bytes; bf16 or fp16.

#include "dev/common/box_columns.h"
#include "dev/common/ring.h"
#include "dev/conv3x3/wgrad_cluster.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/mbarrier.h"
#include "dev/ptx/tma.h"
#include "dev/ptx/wgmma.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kConsumerWarps = 4;
constexpr int kProducers = 2;
constexpr int kFirstBiasWarp = kConsumerWarps + kProducers;
constexpr int kBiasWarps = kColumnWarps;  // one alone takes longer for a patch than its multiplications do
constexpr int kThreads = (kFirstBiasWarp + kBiasWarps) * 32;

constexpr int kRowBytes = 128;  // of a pixel: 64 channels of 16 bits
constexpr int kPatchBytes = kPatchPixels * kRowBytes;
constexpr int kViewBytes = kPatch * kHalo * kRowBytes;  // of x: the patch's rows, with a pixel more at either end
constexpr int kStageBytes = kPatchBytes + kViewBytes;
constexpr int kStages = 12;
static_assert(kStageBytes % 1024 == 0 && kPatchBytes % 1024 == 0, "whole swizzle patterns");
constexpr std::size_t kSmemBytes = std::size_t{kStages} * kStageBytes + 2 * kStages * sizeof(ptx::Mbarrier);
static_assert(kSmemBytes <= 227 * 1024, "what a block of sm_90 can have");

static_assert(ClusterSums<1>::kBytes <= kStages * kStageBytes, "the sums take the stages' place");

template <class T, class P>
__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_wgrad_v10_kernel(Problem p, ClusterSplit split, const __grid_constant__ ptx::TensorMap x_map,
                             const __grid_constant__ ptx::TensorMap dy_map, T* dw, P* dbias, float* partial) {
  LADDER_DYN_SMEM(smem);  // [stage]: dy [8 x 8 pixels][128 bytes], x [8 x 10 pixels][128 bytes]
  auto* const full = reinterpret_cast<ptx::Mbarrier*>(smem + kStages * kStageBytes);
  ptx::Mbarrier* const empty = full + kStages;

  const int tiles_c = ceil_div(p.c, kTileChannels);
  const int tiles_k = ceil_div(p.k, kTileChannels);
  const int rank = blockIdx.x % split.ranks;
  const int tile = blockIdx.x / split.ranks;
  const int r = tile % 3;  // the block's row of the filter
  const int c0 = tile / 3 % tiles_c * kTileChannels;
  const int k0 = tile / 3 / tiles_c % tiles_k * kTileChannels;
  const int cluster_idx = tile / 3 / tiles_c / tiles_k;
  const int begin = (cluster_idx * split.ranks + rank) * split.units_per_block;
  const int count = min(split.units_per_block, num_patches(p) - begin);  // not above 0: nothing to add
  const bool accumulates_bias_gradient = dbias && c0 == 0 && r == 0;

  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, kConsumerWarps + (accumulates_bias_gradient ? kBiasWarps : 0));
    }
    ptx::mbarrier_fence_init();
  }
  if (threadIdx.x == kConsumerWarps * 32) {
    ptx::tma_prefetch(x_map);
    ptx::tma_prefetch(dy_map);
  }
  __syncthreads();
  ptx::grid_dependency_wait();

  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const bool consumes = warp < kConsumerWarps;
  const int bias_warp = warp - kFirstBiasWarp;
  float sum[kColumns / 2];
  float bias_sum[2] = {};

  if (consumes) {
    for (int i = 0; i < count; ++i) {
      ptx::mbarrier_wait(full + stage_of<kStages>(i), parity_of<kStages>(i));
      const unsigned char* const patch = smem + stage_of<kStages>(i) * kStageBytes;
      const unsigned char* const view = patch + kPatchBytes;
      ptx::wgmma_fence();
#pragma unroll
      for (int row = 0; row < kPatch; row += 2) {
        // NOTE: a K step is two image rows of eight pixels: 8 rows of memory apart in dy, a halo's row in x. The next 64
        // columns begin one row of memory on: the next pixel.
        const auto a = ptx::wgmma_descriptor_mn(patch + row * kPatch * kRowBytes, kPatch * kRowBytes, kRowBytes);
        const auto b = ptx::wgmma_descriptor_mn(view + row * kHalo * kRowBytes, kHalo * kRowBytes, kRowBytes);
        ptx::wgmma_m64_mn<T, kColumns>(sum, a, b, i > 0 || row > 0);
      }
      ptx::wgmma_commit();
      // The stage that the multiplications before these have read is free.
      ptx::wgmma_wait<1>();
      if (lane == 0 && i > 0) ptx::mbarrier_arrive(empty + stage_of<kStages>(i - 1));
    }
    ptx::wgmma_wait<0>();
    ptx::warpgroup_fence_operand(sum);
  } else if (warp < kFirstBiasWarp) {
    const int producer = warp - kConsumerWarps;
    if (lane == 0) {
      PatchPosition position = patch_position(p, begin);
      for (int i = 0; i < count; ++i, position.advance(p)) {
        if (i % kProducers != producer) continue;
        unsigned char* const stage = smem + stage_of<kStages>(i) * kStageBytes;
        ptx::Mbarrier* const filled = full + stage_of<kStages>(i);
        // A fresh barrier lets a wait for the parity before its first phase pass.
        ptx::mbarrier_wait(empty + stage_of<kStages>(i), parity_of<kStages>(i) ^ 1);
        ptx::mbarrier_arrive_expect_tx(filled, kPatchBytes + kViewBytes);
        ptx::tma_load(stage, dy_map, filled, k0, position.col, position.row, position.image);
        ptx::tma_load(stage + kPatchBytes, x_map, filled, c0, position.col - 1, position.row + r - 1, position.image);
      }
    }
    ptx::grid_dependency_launch();
    __syncwarp();  // the barriers below are for whole warps
  } else if (accumulates_bias_gradient) {
    // dbias from the same patches.
    for (int i = 0; i < count; ++i) {
      ptx::mbarrier_wait(full + stage_of<kStages>(i), parity_of<kStages>(i));
      add_box_columns<T>(bias_sum, smem + stage_of<kStages>(i) * kStageBytes, bias_warp);
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(empty + stage_of<kStages>(i));
    }
    add_column_lanes(bias_sum);
  }

  // Nobody reads the stages any more: the sums take their place.
  __syncthreads();
  auto* const sums = reinterpret_cast<float*>(smem);
  float* const bias_sums = sums + ClusterSums<1>::kBiasOffset;
  if (consumes) {
    put_wgmma_sums<kColumns>(sums, sum, warp * 16, count > 0);
  } else if (warp >= kFirstBiasWarp && lane < 8) {
    *reinterpret_cast<float2*>(bias_sums + bias_warp * 16 + lane * 2) = {bias_sum[0], bias_sum[1]};
  }
  ptx::cluster_sync();

  const ClusterTile cluster_tile{.r0 = r,
                                 .k0 = k0,
                                 .c0 = c0,
                                 .cluster = cluster_idx,
                                 .rank = rank,
                                 .accumulates_bias_gradient = accumulates_bias_gradient};
  store_cluster_sums<T, 1, kThreads>(p, split, cluster_tile, sums, dw, dbias, partial);
  // A block's memory is there for the others until they have read it.
  ptx::cluster_sync();
}

int num_tiles(const Problem& p) { return 3 * num_patch_tiles(p); }

// A patch's 18 KB come from L2, of which all SMs together get some 7 TB/s, and take longer than its multiplications; v07's
// second kernel took 3 us. Distributed shared memory gives half of the L2's rate.
ClusterSplit split_of(const Problem& p) {
  return plan_cluster_split(num_patches(p), num_tiles(p),
                            {.unit_ns = 330,
                             .start_ns = 3000,
                             .exchange_ns = kTileChannels * kColumns * 4 / 30.0,
                             .partials_ns = 8.0 * partial_row(p) / 3000,
                             .second_ns = 3000})
      .split;
}

std::vector<KernelPlan<Wgrad>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Wgrad>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      return with_parameter_type<T>(p.params16, [&](auto parameter) {
        using P = decltype(parameter);
        return cluster_plans<T, P>(p,
                                   {.kernel = conv3x3_wgrad_v10_kernel<T, P>,
                                    .threads = kThreads,
                                    .smem_bytes = kSmemBytes,
                                    .tiles = num_tiles(p),
                                    .view_rows = kPatch},
                                   split_of(p));
      });
    } else {
      return {};
    }
  });
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Wgrad, {.plans = ladder::conv3x3::plans,
                                        .plan_names = {"patches split over clusters", "patches in one piece",
                                                       "patches split over two clusters of two"},
                                        .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::channels_for_tma,
                                        .min_arch = 90,
                                        .arch_specific = true,
                                        .needs = "c and k multiples of 16 bytes"})

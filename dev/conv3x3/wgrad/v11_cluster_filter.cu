// Idea:   v06's tile with v10's sums: a block has all nine taps of 64 x 64 channels, a warpgroup each row of the filter, so that
//         one copy of a patch and its halo serves three times the products; the blocks that split the patches are a cluster
//         and add up in each other's shared memory.
// Parent: v10, and v06 for the tile.
// Why:    v07 and v10 read dy three times and x once for each row of the filter: 18 KB from L2 for 384 clocks of products, and
//         wait for it. v06 reads 21 KB for 1152 clocks, but wrote 147 KB of partial sums a block, 19 MB whatever the
//         shape; a cluster of eight writes an eighth of that, and nothing of it where one cluster has all patches of a tile.
//         Limiter left: 147 KB a block through distributed shared memory.
// Needs:  as v06: sm_90a; c and k multiples of 16 bytes; bf16 or fp16.

#include "dev/common/ring.h"
#include "dev/conv3x3/wgrad_cluster.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/mbarrier.h"
#include "dev/ptx/tma.h"
#include "dev/ptx/wgmma.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kGroups = 3;  // consumer warpgroups: one for each row of the filter
constexpr int kConsumerWarps = 4 * kGroups;
constexpr int kProducerWarp = kConsumerWarps;
constexpr int kFirstBiasWarp = kProducerWarp + 1;
constexpr int kBiasWarps = 2;
constexpr int kThreads = (kFirstBiasWarp + kBiasWarps) * 32;  // 480: 136 registers a thread

constexpr int kRowBytes = 128;  // of a pixel: 64 channels of 16 bits
constexpr int kPatchBytes = kPatchPixels * kRowBytes;
constexpr int kHaloBytes = kHaloPixels * kRowBytes;
constexpr int kStageBytes = kPatchBytes + (kHaloBytes + 1023) / 1024 * 1024;  // a whole number of swizzle patterns
constexpr int kStages = 10;
constexpr std::size_t kSmemBytes = std::size_t{kStages} * kStageBytes + 2 * kStages * sizeof(ptx::Mbarrier);
static_assert(kSmemBytes <= 227 * 1024, "what a block of sm_90 can have");

static_assert(ClusterSums<kGroups>::kBytes <= kStages * kStageBytes, "the sums take the stages' place");

template <class T, class P>
__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_wgrad_v11_kernel(Problem p, ClusterSplit split, const __grid_constant__ ptx::TensorMap x_map,
                             const __grid_constant__ ptx::TensorMap dy_map, T* dw, P* dbias, float* partial) {
  LADDER_DYN_SMEM(smem);  // [stage]: dy [8 x 8 pixels][128 bytes], x [10 x 10 pixels][128 bytes]
  auto* const full = reinterpret_cast<ptx::Mbarrier*>(smem + kStages * kStageBytes);
  ptx::Mbarrier* const empty = full + kStages;

  const int tiles_c = ceil_div(p.c, kTileChannels);
  const int tiles_k = ceil_div(p.k, kTileChannels);
  const int rank = blockIdx.x % split.ranks;
  const int tile = blockIdx.x / split.ranks;
  const int c0 = tile % tiles_c * kTileChannels;
  const int k0 = tile / tiles_c % tiles_k * kTileChannels;
  const int cluster_idx = tile / tiles_c / tiles_k;
  const int begin = (cluster_idx * split.ranks + rank) * split.units_per_block;
  const int count = min(split.units_per_block, num_patches(p) - begin);  // not above 0: nothing to add
  const bool accumulates_bias_gradient = dbias && c0 == 0;

  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, kConsumerWarps + (accumulates_bias_gradient ? kBiasWarps : 0));
    }
    ptx::mbarrier_fence_init();
  }
  if (threadIdx.x == kProducerWarp * 32) {
    ptx::tma_prefetch(x_map);
    ptx::tma_prefetch(dy_map);
  }
  __syncthreads();
  ptx::grid_dependency_wait();

  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const bool consumes = warp < kConsumerWarps;
  const int word = (warp - kFirstBiasWarp) * 16 + lane % 16;  // of a pixel's row, a bias warp's lane
  float sum[kColumns / 2];
  float bias_sum[2] = {};

  if (consumes) {
    for (int i = 0; i < count; ++i) {
      ptx::mbarrier_wait(full + stage_of<kStages>(i), parity_of<kStages>(i));
      const unsigned char* const patch = smem + stage_of<kStages>(i) * kStageBytes;
      const unsigned char* const halo = patch + kPatchBytes + warp / 4 * kHalo * kRowBytes;
      ptx::wgmma_fence();
#pragma unroll
      for (int row = 0; row < kPatch; row += 2) {
        // NOTE: a K step is two image rows of eight pixels: 8 rows of memory apart in dy, a halo's row in x. The next 64
        // columns begin one row of memory on: the next pixel.
        const auto a = ptx::wgmma_descriptor_mn(patch + row * kPatch * kRowBytes, kPatch * kRowBytes, kRowBytes);
        const auto b = ptx::wgmma_descriptor_mn(halo + row * kHalo * kRowBytes, kHalo * kRowBytes, kRowBytes);
        ptx::wgmma_m64_mn<T, kColumns>(sum, a, b, i > 0 || row > 0);
      }
      ptx::wgmma_commit();
      // The stage that the multiplications before these have read is free.
      ptx::wgmma_wait<1>();
      if (lane == 0 && i > 0) ptx::mbarrier_arrive(empty + stage_of<kStages>(i - 1));
    }
    ptx::wgmma_wait<0>();
    ptx::warpgroup_fence_operand(sum);
  } else if (warp == kProducerWarp) {
    if (lane == 0) {
      PatchPosition position = patch_position(p, begin);
      for (int i = 0; i < count; ++i, position.advance(p)) {
        unsigned char* const stage = smem + stage_of<kStages>(i) * kStageBytes;
        ptx::Mbarrier* const filled = full + stage_of<kStages>(i);
        // A fresh barrier lets a wait for the parity before its first phase pass.
        ptx::mbarrier_wait(empty + stage_of<kStages>(i), parity_of<kStages>(i) ^ 1);
        ptx::mbarrier_arrive_expect_tx(filled, kPatchBytes + kHaloBytes);
        ptx::tma_load(stage, dy_map, filled, k0, position.col, position.row, position.image);
        ptx::tma_load(stage + kPatchBytes, x_map, filled, c0, position.col - 1, position.row - 1, position.image);
      }
    }
    ptx::grid_dependency_launch();
    __syncwarp();  // the barriers below are for whole warps
  } else if (accumulates_bias_gradient) {
    // dbias from the same patches: a warp has 32 output channels, sixteen words of each pixel's swizzled row, a lane one of
    // these in every other four pixels. Pixels four apart keep the lanes in different banks.
    for (int i = 0; i < count; ++i) {
      ptx::mbarrier_wait(full + stage_of<kStages>(i), parity_of<kStages>(i));
      const unsigned char* const patch = smem + stage_of<kStages>(i) * kStageBytes;
#pragma unroll
      for (int j = 0; j < kPatchPixels / 2; ++j) {
        const int pixel = j / 4 * 8 + lane / 16 * 4 + j % 4;
        const unsigned pair[1] = {
            *reinterpret_cast<const unsigned*>(patch + pixel * kRowBytes + (word / 4 ^ pixel % 8) * 16 + word % 4 * 4)};
        float values[2];
        unpack<T, 1>(pair, values);
        bias_sum[0] += values[0], bias_sum[1] += values[1];
      }
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(empty + stage_of<kStages>(i));
    }
    bias_sum[0] += __shfl_xor_sync(0xffffffff, bias_sum[0], 16);
    bias_sum[1] += __shfl_xor_sync(0xffffffff, bias_sum[1], 16);
  }

  // Nobody reads the stages any more: the sums take their place.
  __syncthreads();
  auto* const sums = reinterpret_cast<float*>(smem);
  float* const bias_sums = sums + ClusterSums<kGroups>::kBiasOffset;
  if (consumes) {
    put_wgmma_sums<kColumns>(sums, sum, warp * 16, count > 0);
  } else if (warp >= kFirstBiasWarp && lane < 16) {
    *reinterpret_cast<float2*>(bias_sums + word * 2) = {bias_sum[0], bias_sum[1]};
  }
  ptx::cluster_sync();

  const ClusterTile cluster_tile{.r0 = 0,
                                 .k0 = k0,
                                 .c0 = c0,
                                 .cluster = cluster_idx,
                                 .rank = rank,
                                 .accumulates_bias_gradient = accumulates_bias_gradient};
  store_cluster_sums<T, kGroups, kThreads>(p, split, cluster_tile, sums, dw, dbias, partial);
  // A block's memory is there for the others until they have read it.
  ptx::cluster_sync();
}

// A patch takes 3 x 4 wgmmas of 96 clocks at some 1.7 GHz; distributed shared memory gives two thirds of the L2's rate.
ClusterSplit split_of(const Problem& p) {
  return plan_cluster_split(num_patches(p), num_patch_tiles(p),
                            {.unit_ns = 690,
                             .start_ns = 3000,
                             .exchange_ns = kGroups * kTileChannels * kColumns * 4 / 40.0,
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
                                   {.kernel = conv3x3_wgrad_v11_kernel<T, P>,
                                    .threads = kThreads,
                                    .smem_bytes = kSmemBytes,
                                    .tiles = num_patch_tiles(p),
                                    .view_rows = kHalo},
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

// Idea:   the tiles of all layers are one grid, each a cluster as in wgrad's v11: a few blocks that split the patches and add
//         up in each other's shared memory. As many blocks to a cluster as fill the card once.
// Parent: v01 here; wgrad v11 for the tile, all nine taps of 64 x 64 channels.
// Why:    v11's tile reads 21 KB for 1152 clocks of products, where v07's and v10's read 18 KB for 384 and wait for L2. But
//         one layer has few such tiles, 16 at 8x8 with 256 channels: blocks had 2 to 4 patches each, and 147 KB of sums to
//         exchange. Eight layers have 128 tiles of 32 patches: a block each, nothing to exchange, one start instead of
//         eight. Limiter left: whole waves of whole clusters.
// Needs:  as v11: sm_90a; c and k multiples of 16 bytes; bf16 or fp16.

#include <algorithm>

#include "core/occupancy.h"
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

template <class T>
struct Layers {
  ptx::TensorMap x[kMaxBatch], dy[kMaxBatch];
  T* dw[kMaxBatch];
  float* dbias[kMaxBatch];
};

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_wgrad_batch_v02_kernel(Problem p, ClusterSplit split, const __grid_constant__ Layers<T> layers) {
  LADDER_DYN_SMEM(smem);  // [stage]: dy [8 x 8 pixels][128 bytes], x [10 x 10 pixels][128 bytes]
  auto* const full = reinterpret_cast<ptx::Mbarrier*>(smem + kStages * kStageBytes);
  ptx::Mbarrier* const empty = full + kStages;

  const int tiles_c = ceil_div(p.c, kTileChannels);
  const int tiles_k = ceil_div(p.k, kTileChannels);
  const int rank = blockIdx.x % split.ranks;
  const int tile = blockIdx.x / split.ranks;
  const int c0 = tile % tiles_c * kTileChannels;
  const int k0 = tile / tiles_c % tiles_k * kTileChannels;
  const int layer = tile / tiles_c / tiles_k;
  const int begin = rank * split.units_per_block;
  const int count = min(split.units_per_block, num_patches(p) - begin);  // not above 0: nothing to add
  const bool accumulates_bias_gradient = p.bias && c0 == 0;

  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, kConsumerWarps + (accumulates_bias_gradient ? kBiasWarps : 0));
    }
    ptx::mbarrier_fence_init();
  }
  if (threadIdx.x == kProducerWarp * 32) {
    ptx::tma_prefetch(layers.x[layer]);
    ptx::tma_prefetch(layers.dy[layer]);
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
      const ptx::TensorMap& x_map = layers.x[layer];
      const ptx::TensorMap& dy_map = layers.dy[layer];
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
  ptx::grid_dependency_launch();
  auto* const sums = reinterpret_cast<float*>(smem);
  float* const bias_sums = sums + ClusterSums<kGroups>::kBiasOffset;
  if (consumes) {
    put_wgmma_sums<kColumns>(sums, sum, warp * 16, count > 0);
  } else if (warp >= kFirstBiasWarp && lane < 16) {
    *reinterpret_cast<float2*>(bias_sums + word * 2) = {bias_sum[0], bias_sum[1]};
  }
  ptx::cluster_sync();

  const ClusterTile cluster_tile{
      .r0 = 0, .k0 = k0, .c0 = c0, .cluster = 0, .rank = rank, .accumulates_bias_gradient = accumulates_bias_gradient};
  store_cluster_sums<T, kGroups, kThreads>(p, split, cluster_tile, sums, layers.dw[layer], layers.dbias[layer],
                                           nullptr);
  // A block's memory is there for the others until they have read it.
  ptx::cluster_sync();
}

LaunchConfig config_of(const Problem& p, int ranks) {
  return {.grid = static_cast<unsigned>(p.batch * num_patch_tiles(p) * ranks),
          .block = kThreads,
          .dynamic_smem = kSmemBytes,
          .cluster = static_cast<unsigned>(ranks),
          .overlaps_previous = true};
}

// The cluster that takes the least time: whole waves of as many as the card runs at once.
template <class T>
int ranks_of(const Problem& p) {
  constexpr double kPatchNs = 690;  // 3 x 4 wgmmas of 96 clocks at some 1.7 GHz
  constexpr double kStartNs = 3000;
  constexpr double kExchangeNs =
      1000 + kGroups * kTileChannels * kColumns * 4 / 40.0;  // at two thirds of the L2's rate
  int best = 1;
  double best_ns = 0;
  for (int ranks = 1; ranks <= std::min(kMaxClusterBlocks, num_patches(p)); ++ranks) {
    const int at_once = resident_clusters(conv3x3_wgrad_batch_v02_kernel<T>, config_of(p, ranks));
    if (at_once == 0) continue;
    const double ns = ceil_div(p.batch * num_patch_tiles(p), at_once) *
                      (kStartNs + ceil_div(num_patches(p), ranks) * kPatchNs + (ranks > 1 ? kExchangeNs : 0));
    if (best_ns == 0 || ns < best_ns) best = ranks, best_ns = ns;
  }
  return best;
}

template <class T>
KernelPlan<WgradBatch> plan_of(const Problem& p, const char* name, int ranks) {
  const auto bind = [p, ranks](const WgradBatch::Tensors& t, void*) {
    const auto size = [](int value) { return static_cast<std::uint64_t>(value); };
    Layers<T> layers{};
    for (int i = 0; i < p.batch; ++i) {
      layers.x[i] = ptx::make_tensor_map(p.dtype, t.x[i], {size(p.c), size(p.w), size(p.h), size(p.n)},
                                         {kTileChannels, kHalo, kHalo, 1});
      layers.dy[i] = ptx::make_tensor_map(p.dtype, t.dy[i], {size(p.k), size(p.w), size(p.h), size(p.n)},
                                          {kTileChannels, kPatch, kPatch, 1});
      layers.dw[i] = static_cast<T*>(t.dw[i]);
      layers.dbias[i] = t.dbias[i];
    }
    return bind_launch(conv3x3_wgrad_batch_v02_kernel<T>, config_of(p, ranks), p,
                       ClusterSplit{.clusters = 1, .ranks = ranks, .units_per_block = ceil_div(num_patches(p), ranks)},
                       layers);
  };
  return {.name = name, .bind = bind};
}

// The first by default; the other is what tests of small problems run.
std::vector<KernelPlan<WgradBatch>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<WgradBatch>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      return {plan_of<T>(p, "clusters that fill the card", ranks_of<T>(p)), plan_of<T>(p, "clusters of three", 3)};
    } else {
      return {};
    }
  });
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::WgradBatch, {.plans = ladder::conv3x3::plans,
                                             .plan_names = {"clusters that fill the card", "clusters of three"},
                                             .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                             .supports = ladder::conv3x3::channels_for_tma,
                                             .min_arch = 90,
                                             .arch_specific = true,
                                             .needs = "c and k multiples of 16 bytes"})

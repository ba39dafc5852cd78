// Idea:   a cluster of two blocks whose tiles lie one below the other: they multiply the same columns of w, so each loads half of
//         a step of w for both, by the TMA's multicast.
// Parent: v07.
// Why:    v07 reads 48 bytes from L2 a clock and SM, just what L2 gives, and pays for them in power, which sets the clock. Here it
//         is 32. Limiter left: power; the two blocks wait for each other at every stage of the ring.
// Needs:  sm_90a; rows of x and w of whole 16 bytes: k a multiple of 8, of 4 in TF32. Large m and n: other tiles are idle.

// Shared memory of each block, S = Tile::kStages:
//
//     S x 48 KB     ring: stage = x [128 rows][128 bytes], w [256 rows][128 bytes]; swizzled by 128 bytes
//     kStoreBytes   staging [8 warps]: sums on their way out
//     S x 8 bytes   full[stage]: 1 arrival and 48 KB by TMA, of which the other block sends 16 KB
//     S x 8 bytes   empty[stage]: 16 arrivals, the consumer warps of both blocks
//
// Loads of a step, tile [256 rows of x] x [256 rows of w]:
//
//     block 0   x rows   0..127 to its own stage   w rows   0..127 to the stage of both blocks
//     block 1   x rows 128..255 to its own stage   w rows 128..255 to the stage of both blocks

#include "dev/gemm/cooperative_tile.h"
#include "dev/gemm/wide_tile.h"
#include "dev/ptx/cluster.h"
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
constexpr unsigned kPair = 2;    // blocks of a cluster
constexpr int kWgmmaBytes = 32;  // of a row, in one instruction

template <class T>
using Tile = CooperativeTile<kBlockM, kBlockN, kBytesX + kBytesW, kConsumerThreads / 32 * kWarpStoreBytes<T>>;

// The tiles of a cluster, as TileOrder and num_tiles() know a tile.
struct PairTile {
  static constexpr int kBlockM = static_cast<int>(kPair) * gemm::kBlockM, kBlockN = gemm::kBlockN;
};

// y [m, n] = x [m, k] times w [n, k] transposed.
__host__ __device__ Product product(const Problem& p) { return {.rows = p.m, .columns = p.n, .terms = p.k}; }

template <class T, class P>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    gemm_fprop_v09_kernel(Problem p, const __grid_constant__ ptx::TensorMap x_map,
                          const __grid_constant__ ptx::TensorMap w_map, Epilogue<T, P> epilogue, T* y) {
  using Tile = Tile<T>;
  LADDER_DYN_SMEM(smem);  // [stage]: 128 rows of x, then 256 of w, 128 bytes each
  if (threadIdx.x == kConsumerThreads) {
    ptx::tma_prefetch(x_map);
    ptx::tma_prefetch(w_map);
  }
  const StageBarriers<Tile> stages(smem, kPair);
  ptx::cluster_sync();  // the other block's barriers can be arrived at
  ptx::grid_dependency_wait();

  const Product c = product(p);
  const TileOrder<PairTile> order(c);
  const int rank = static_cast<int>(ptx::cluster_rank());
  const int cluster = blockIdx.x / kPair, clusters = gridDim.x / kPair;
  const int steps = ceil_div(c.terms, kTerms<T>);
  RingIndex<Tile::kStages> ring;

  if (threadIdx.x >= kConsumerThreads) {
    // The producer, one thread. A fresh barrier lets a wait for the parity before its first phase pass: parity ^ 1.
    ptx::warpgroup_reg_dealloc<kProducerRegisters>();
    if (threadIdx.x == kConsumerThreads) {
      constexpr int kHalf = kBlockN / static_cast<int>(kPair);
      constexpr std::uint16_t kBoth = (1 << kPair) - 1;
      for (int tile = cluster; tile < order.count(); tile += clusters) {
        const int2 first = order.offset_of(tile);
        for (int step = 0; step < steps; ++step, ring.advance()) {
          unsigned char* const to = smem + ring.stage * Tile::kStageBytes;
          ptx::Mbarrier* const full = stages.full + ring.stage;
          ptx::mbarrier_wait(stages.empty + ring.stage, ring.parity ^ 1);  // in both blocks
          ptx::mbarrier_arrive_expect_tx(full, Tile::kStageBytes);
          ptx::tma_load(to, x_map, full, step * kTerms<T>, first.x + rank * kBlockM, 0);
          ptx::tma_load_multicast(to + kBytesX + rank * kHalf * kStepRowBytes, w_map, full, kBoth, step * kTerms<T>,
                                  first.y + rank * kHalf, 0);
        }
      }
      ptx::grid_dependency_launch();
    }
  } else {
    ptx::warpgroup_reg_alloc<kConsumerRegisters>();
    const int group = threadIdx.x / kGroupThreads;
    const int warp = threadIdx.x / 32;
    const unsigned lane = threadIdx.x % 32;
    const auto say_empty = [&](int stage) {  // to both blocks
      if (lane < kPair) ptx::mbarrier_arrive_cluster_relaxed(ptx::mapa(stages.empty + stage, lane));
    };
    unsigned char* const staging = smem + Tile::kStages * Tile::kStageBytes + warp * kWarpStoreBytes<T>;
    for (int tile = cluster; tile < order.count(); tile += clusters) {
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
        if (step > 0) say_empty(previous);
        previous = ring.stage;
      }
      ptx::wgmma_wait<0>();
      ptx::warpgroup_fence_operand(acc);
      say_empty(previous);
      store_wide<kBlockN>(staging, acc, first.x + rank * kBlockM + group * Tile::kGroupRows + warp % 4 * 16, first.y, c,
                          epilogue, y);
    }
  }
  // Neither block ends while the other may still copy into it or arrive at its barriers.
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
}

std::vector<KernelPlan<Fprop>> plans(const Problem& p) {
  const auto bind = [p](const Fprop::Tensors& t, void*) {
    return with_storage_type(p.dtype, [&](auto element) {
      using T = decltype(element);
      return with_parameter_type<T>(p.params16, [&](auto parameter) {
        using P = decltype(parameter);
        const auto kernel = gemm_fprop_v09_kernel<T, P>;
        LaunchConfig config{.grid = kPair,
                            .block = kWgmmaThreads,
                            .dynamic_smem = Tile<T>::kSmemBytes,
                            .cluster = kPair,
                            .overlaps_previous = true};
        const int clusters = std::min(num_tiles<PairTile>(product(p)), resident_clusters(kernel, config));
        config.grid = kPair * static_cast<unsigned>(clusters);
        return bind_launch(kernel, config, p, map_of_steps<T>(p, t.x, p.m, kBlockM),
                           map_of_steps<T>(p, t.w, p.n, kBlockN / kPair), epilogue_of<T, P>(p, t),
                           static_cast<T*>(t.y));
      });
    });
  };
  return {{.name = "two of 128x256", .bind = bind}};
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Fprop,
               {.plans = ladder::gemm::plans,
                .plan_names = {"two of 128x256"},
                .dtypes = {ladder::Dtype::f32, ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                .supports = ladder::gemm::wide_supports,
                .min_arch = 90,
                .arch_specific = true,
                .needs = "k a multiple of 8, of 4 in TF32; in fp32 allow_tf32"})

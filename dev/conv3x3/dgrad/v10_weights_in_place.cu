// Idea:   weights read where they lie. A box of the TMA brings 64 output channels x 64 input channels of one tap as they are
//         in w, and wgmma takes it as an MN-major operand: the tensor cores exchange the channels, the tap's number is
//         counted backwards, and nothing flips w beforehand.
// Parent: v07.
// Why:    v07's flip is a launch before each of a step's data gradients, and all of it latency. Limiter: the forward v09's,
//         whose tiles, rings and epilogue these are: both warpgroups store at the same time, so the tensor cores idle
//         through each tile's end.
// Needs:  sm_90a; c and k multiples of 16 bytes (the TMA's strides); bf16 or fp16, as wgmma takes no other MN-major.

#include "core/early_tensors.h"
#include "dev/conv3x3/wgmma_halo.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/setmaxnreg.h"

namespace ladder::conv3x3 {
namespace {

// w [k][tap][c] as it lies: a row of shared memory is 64 channels c of one k that is summed over, so the operand is MN-major.
// A box holds 64 x 64 channels; taps are counted backwards.
struct BackwardHaloWeights {
  static constexpr bool kAnyChannels = false;
  static constexpr int kBoxChannels = 64;
  static constexpr int kBoxBytes = kBoxChannels * kRowBytes;
  // [box][64 of k][64 of c]
  static constexpr int stage_bytes(int block_n) { return ceil_div(block_n, kBoxChannels) * kBoxBytes; }

  static __host__ __device__ int channels_in(const Problem& p) { return p.k; }
  static __host__ __device__ int channels_out(const Problem& p) { return p.c; }

  template <int kChunk, int kBlockN>
  static __device__ __forceinline__ void load(unsigned char* stage, const ptx::TensorMap& map, ptx::Mbarrier* full,
                                              int chunk, int tap, int c0) {
    for (int box = 0; box < ceil_div(kBlockN, kBoxChannels); ++box) {
      ptx::tma_load(stage + box * kBoxBytes, map, full, c0 + box * kBoxChannels, 8 - tap, chunk * kChunk);
    }
  }
  static __device__ __forceinline__ std::uint64_t operand(const unsigned char* weights, int step) {
    return ptx::wgmma_descriptor_mn(weights + step * 16 * kRowBytes, 8 * kRowBytes, kBoxBytes);
  }
  template <class T, int kBlockN>
  static __device__ __forceinline__ void multiply(float (&sum)[kBlockN / 2], std::uint64_t a, std::uint64_t b,
                                                  bool accumulate) {
    ptx::wgmma_m64_b_mn<T, kBlockN>(sum, a, b, accumulate);
  }
};

template <class T, class Tile>
__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_dgrad_v10_kernel(Problem p, const __grid_constant__ ptx::TensorMap dy_map,
                             const __grid_constant__ ptx::TensorMap w_map, T* dx, bool early_weights) {
  LADDER_DYN_SMEM(dynamic_smem);
  const HaloSmem<Tile> smem(dynamic_smem);
  if (threadIdx.x == 0) smem.init_barriers();
  if (threadIdx.x == kConsumerWarps * 32) {
    ptx::tma_prefetch(dy_map);
    ptx::tma_prefetch(w_map);
  }
  __syncthreads();
  const HaloTiles tiles = halo_tiles<T, Tile>(p);
  const int warp = threadIdx.x / 32;
  RingIndex<Tile::kStagesA> a;
  RingIndex<Tile::kStagesB> b;

  // The producer.
  if (warp >= kConsumerWarps) {
    ptx::warpgroup_reg_dealloc<kProducerRegisters>();
    if (threadIdx.x != kConsumerWarps * 32) return;
    int early_taps = 0;
    if (early_weights) {
      const int channel0 = blockIdx.x % tiles.channel_tiles * Tile::kBlockN;
      early_taps = load_taps_early<T>(smem, b, w_map, tiles.chunks, channel0);
    }
    for (int tile = blockIdx.x; tile < tiles.count; tile += gridDim.x) {
      const int channel0 = tile % tiles.channel_tiles * Tile::kBlockN;
      const int patch0 = tile / tiles.channel_tiles * Tile::kPatches;
      const PatchPosition first = patch_position(p, patch0);
      ptx::grid_dependency_wait_after(first.image | first.row | first.col | channel0);
      for (int chunk = 0; chunk < tiles.chunks; ++chunk, a.advance()) {
        // A fresh barrier lets a wait for the parity before its first phase pass: parity ^ 1.
        ptx::mbarrier_wait(smem.empty_a + a.stage, a.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(smem.full_a + a.stage, Tile::kPatches * kHaloBytes);
        for (int i = 0; i < Tile::kPatches; ++i) {
          load_patch(smem.as + a.stage * Tile::kStageBytesA + i * kPatchBytes, dy_map, smem.full_a + a.stage,
                     patch_position(p, patch0 + i), chunk * kChunk<T>);
        }
        load_taps<T>(smem, b, w_map, chunk, channel0, min(early_taps, 9));
        early_taps -= min(early_taps, 9);
      }
    }
    ptx::grid_dependency_launch();
    return;
  }

  // The consumers: a share of the tile's patches for each warpgroup or, of a tile with one patch, half of each chunk.
  ptx::warpgroup_reg_alloc<kConsumerRegisters>();
  const int group = warp / 4;
  const bool elected = threadIdx.x % 32 == 0;
  unsigned reduce_parity = 0;
  ptx::grid_dependency_wait();
  for (int tile = blockIdx.x; tile < tiles.count; tile += gridDim.x) {
    const int channel0 = tile % tiles.channel_tiles * Tile::kBlockN;
    const int patch0 = tile / tiles.channel_tiles * Tile::kPatches + (Tile::kSplitK ? 0 : group * Tile::kGroupPatches);
    float sum[Tile::kGroupPatches][Tile::kBlockN / 2];
    multiply_tile<T>(smem, tiles.chunks, group, elected, a, b, sum);
    if constexpr (Tile::kSplitK) {
      add_halves(smem, group, reduce_parity, sum[0]);
      reduce_parity ^= 1;
      if (group == 1) continue;
    }
#pragma unroll
    for (int i = 0; i < Tile::kGroupPatches; ++i) {
      store_sums<T, Tile>(p, sum[i], patch_position(p, patch0 + i), channel0, nullptr, dx,
                          smem.staging + warp * kStagingBytes);
    }
  }
}

template <class T, class Tile>
KernelPlan<Dgrad> tile_plan(const Problem& p, const char* name) {
  const auto bind = [p](const Dgrad::Tensors& t, void*) {
    return bind_launch(conv3x3_dgrad_v10_kernel<T, Tile>, halo_config<Tile>(p), p,
                       halo_map(p, t.dy, BackwardHaloWeights::channels_in(p)),
                       weight_map(p, t.w, BackwardHaloWeights::kBoxChannels, BackwardHaloWeights::kBoxChannels),
                       static_cast<T*>(t.dx), loads_early(t.w));
  };
  return {.name = name, .bind = bind};
}

std::vector<KernelPlan<Dgrad>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Dgrad>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      return halo_plans<Dgrad, BackwardHaloWeights>(
          p, [&](auto tile, const char* name) { return tile_plan<T, decltype(tile)>(p, name); });
    } else {
      return {};
    }
  });
}

const char* supports(const Problem& p) {
  return p.c % 8 == 0 && p.k % 8 == 0 ? nullptr
                                      : "c or k is not a multiple of 16 bytes, which the TMA's strides must be";
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Dgrad, {.plans = ladder::conv3x3::plans,
                                        .plan_names = {"4 patches x 128 channels", "4 patches x 64 channels",
                                                       "2 patches x 96 channels", "1 patch x 64 channels"},
                                        .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::supports,
                                        .min_arch = 90,
                                        .arch_specific = true,
                                        .needs = "c and k multiples of 16 bytes"})

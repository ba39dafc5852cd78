// Idea:   TMA, wgmma and warp specialisation. The TMA fetches each patch of 8x8 pixels once, with its halo, and wgmma
//         reads all nine taps from that one copy: a tap is a start address shifted by rows. Blocks are persistent; a
//         producer warp runs ahead of two consumer warpgroups, from tile to tile, through rings of stages.
// Parent: v08.
// Why:    v08 fetches every pixel nine times, and its 2x2 warps load every operand into registers twice; mma.sync gives
//         it at most two thirds of the tensor rate. Here a pixel is fetched 1.6 times (10x10 for 8x8), operands stay in
//         shared memory, and no thread computes an address. Limiter left: both warpgroups store at the same time, so
//         the tensor cores idle through each tile's epilogue, and every tile reads its weights again.
// Needs:  sm_90a; c a multiple of 16 bytes (the TMA's strides). Any h and w: patches may extend past the image's edge.
//
// Maps of shared memory and of the phases: wgmma_halo.h.

#include "dev/conv3x3/wgmma_halo.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/setmaxnreg.h"

namespace ladder::conv3x3 {
namespace {

// Reads w [k][tap][c] without a transposition. A row of operand B in shared memory is one output channel's 128 bytes, a
// chunk of the input channels c. The product sums over c, which is contiguous, so B is K-major.
struct HaloWeights {
  static constexpr bool kAnyChannels = true;
  static constexpr int stage_bytes(int block_n) { return block_n * kRowBytes; }  // [k][128 bytes of c]

  static __host__ __device__ int channels_in(const Problem& p) { return p.c; }
  static __host__ __device__ int channels_out(const Problem& p) { return p.k; }

  template <int kChunk, int kBlockN>
  static __device__ __forceinline__ void load(unsigned char* stage, const ptx::TensorMap& map, ptx::Mbarrier* full,
                                              int chunk, int tap, int k0) {
    ptx::tma_load(stage, map, full, chunk * kChunk, tap, k0);
  }
  static __device__ __forceinline__ std::uint64_t operand(const unsigned char* weights, int step) {
    return ptx::wgmma_descriptor(weights + step * 32, 8 * kRowBytes);
  }
  template <class T, int kBlockN>
  static __device__ __forceinline__ void multiply(float (&sum)[kBlockN / 2], std::uint64_t a, std::uint64_t b,
                                                  bool accumulate) {
    ptx::wgmma_m64<T, kBlockN>(sum, a, b, accumulate);
  }
};

template <class T, class Tile, class P>
__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_fprop_v09_kernel(Problem p, const __grid_constant__ ptx::TensorMap x_map,
                             const __grid_constant__ ptx::TensorMap w_map, const P* bias, T* y) {
  LADDER_DYN_SMEM(dynamic_smem);
  const HaloSmem<Tile> smem(dynamic_smem);
  if (threadIdx.x == 0) smem.init_barriers();
  if (threadIdx.x == kConsumerWarps * 32) {
    ptx::tma_prefetch(x_map);
    ptx::tma_prefetch(w_map);
  }
  __syncthreads();
  const HaloTiles tiles = halo_tiles<T, Tile>(p);
  const int warp = threadIdx.x / 32;
  RingIndex<Tile::kStagesA> a;
  RingIndex<Tile::kStagesB> b;

  // The producer: one thread of the third warpgroup.
  if (warp >= kConsumerWarps) {
    ptx::warpgroup_reg_dealloc<kProducerRegisters>();
    if (threadIdx.x != kConsumerWarps * 32) return;
    for (int tile = blockIdx.x; tile < tiles.count; tile += gridDim.x) {
      const int channel0 = tile % tiles.channel_tiles * Tile::kBlockN;
      const int patch0 = tile / tiles.channel_tiles * Tile::kPatches;
      const PatchPosition first = patch_position(p, patch0);
      ptx::grid_dependency_wait_after(first.image | first.row | first.col | channel0);
      for (int chunk = 0; chunk < tiles.chunks; ++chunk, a.advance()) {
        // Wait for the phase before a.parity's: on a fresh barrier, whose stage is empty, this wait passes at once.
        ptx::mbarrier_wait(smem.empty_a + a.stage, a.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(smem.full_a + a.stage, Tile::kPatches * kHaloBytes);
        for (int i = 0; i < Tile::kPatches; ++i) {
          load_patch(smem.as + a.stage * Tile::kStageBytesA + i * kPatchBytes, x_map, smem.full_a + a.stage,
                     patch_position(p, patch0 + i), chunk * kChunk<T>);
        }
        load_taps<T>(smem, b, w_map, chunk, channel0);
      }
    }
    ptx::grid_dependency_launch();
    return;
  }

  // The consumers: each warpgroup multiplies half of the tile's patches or, if a tile is one patch (kSplitK), half of
  // each chunk's channels.
  ptx::warpgroup_reg_alloc<kConsumerRegisters>();
  const int group = warp / 4;
  const bool elected = threadIdx.x % 32 == 0;  // releases stages for its warp
  unsigned reduce_parity = 0;
  ptx::grid_dependency_wait();
  for (int tile = blockIdx.x; tile < tiles.count; tile += gridDim.x) {
    const int channel0 = tile % tiles.channel_tiles * Tile::kBlockN;
    const int patch0 = tile / tiles.channel_tiles * Tile::kPatches + (Tile::kSplitK ? 0 : group * Tile::kGroupPatches);
    float2 of_channels[Tile::kBlockN / 8];
    fetch_bias<Tile>(p, bias, channel0, of_channels);
    float sum[Tile::kGroupPatches][Tile::kBlockN / 2];
    multiply_tile<T>(smem, tiles.chunks, group, elected, a, b, sum);
    if constexpr (Tile::kSplitK) {
      add_halves(smem, group, reduce_parity, sum[0]);
      reduce_parity ^= 1;
      if (group == 1) continue;  // warpgroup 0 stores the sums of both
    }
#pragma unroll
    for (int i = 0; i < Tile::kGroupPatches; ++i) {
      store_sums<T, Tile>(p, sum[i], patch_position(p, patch0 + i), channel0, of_channels, y,
                          smem.staging + warp * kStagingBytes);
    }
  }
}

template <class T, class Tile>
KernelPlan<Fprop> tile_plan(const Problem& p, const char* name) {
  const auto bind = [p](const Fprop::Tensors& t, void*) {
    return with_parameter_type<T>(p.params16, [&](auto parameter) {
      using P = decltype(parameter);
      return bind_launch(conv3x3_fprop_v09_kernel<T, Tile, P>, halo_config<Tile>(p), p,
                         halo_map(p, t.x, HaloWeights::channels_in(p)), weight_map(p, t.w, Tile::kBlockN, kChunk<T>),
                         typed<P>(t.bias), static_cast<T*>(t.y));
    });
  };
  return {.name = name, .bind = bind};
}

std::vector<KernelPlan<Fprop>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    return halo_plans<Fprop, HaloWeights>(
        p, [&](auto tile, const char* name) { return tile_plan<T, decltype(tile)>(p, name); });
  });
}

const char* supports(const Problem& p) {
  if (const char* const why = bias_only(p)) return why;

  const std::size_t element = p.dtype == Dtype::tf32 ? 4 : 2;
  return p.c * element % 16 == 0 ? nullptr : "c is not a multiple of 16 bytes, which the TMA's strides must be";
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Fprop, {.plans = ladder::conv3x3::plans,
                                        .plan_names = {"4 patches x 128 channels", "4 patches x 64 channels",
                                                       "2 patches x 96 channels", "1 patch x 64 channels"},
                                        .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::supports,
                                        .min_arch = 90,
                                        .arch_specific = true,
                                        .needs = "c a multiple of 16 bytes"})

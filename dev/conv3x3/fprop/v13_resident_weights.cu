// Idea:   the weights stay. A block keeps all nine taps of its 64 output channels in shared memory and reads nothing but
//         patches, and its two consumer warpgroups take tiles by turns: one stores while the other multiplies.
// Parent: v09.
// Why:    v09 reads a tile's weights again for each tile, which fills its stages, and both its warpgroups store at the same
//         time: 1.6 to 1.9 us a tile in which the tensor cores idle, 22 us at 64x64, 64 -> 64, for 11.5 us of products. A
//         prototype with resident weights took 15.4. Limiter left: the weights and the first patch before the first product,
//         the last tile's store.
// Needs:  sm_90a; c at most 128 and a multiple of 8 (the TMA's strides), k a multiple of 8; bf16 or fp16.

#include "dev/conv3x3/resident_weights.h"
#include "dev/ptx/tma.h"
#include "dev/ptx/wgmma.h"

namespace ladder::conv3x3 {
namespace {

template <class T, class Tile>
__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_fprop_v13_kernel(Problem p, const __grid_constant__ ptx::TensorMap x_map,
                             const __grid_constant__ ptx::TensorMap w_map, const float* bias, T* y) {
  LADDER_DYN_SMEM(smem);
  unsigned char* const weights = smem;                                       // [chunk][tap][64 of k][64 of c]
  unsigned char* const stages = weights + Tile::kWeightBytes;                // [stage][patch][10 x 10 pixels][64 of c]
  unsigned char* const stores = stages + Tile::kStages * Tile::kStageBytes;  // [warp]
  auto* const full = reinterpret_cast<ptx::Mbarrier*>(stages + Tile::kBarriersAt);
  ptx::Mbarrier* const empty = full + Tile::kStages;
  ptx::Mbarrier* const full_weights = empty + Tile::kStages;  // [chunk][tap]
  const PingPongOrder turns{full_weights + Tile::kMaxChunks * 9};

  const int chunks = ceil_div(p.c, kChunk);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::kStages; ++i) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, kGroupThreads / 32);
    }
    for (int i = 0; i < chunks * 9; ++i) ptx::mbarrier_init(full_weights + i, 1);
    turns.init();
    ptx::mbarrier_fence_init();
  }
  __syncthreads();

  // A block has one tile of channels, and of the tiles of patches every so many.
  const int tiles_k = ceil_div(p.k, kTileChannels);
  const int k0 = static_cast<int>(blockIdx.x) % tiles_k * kTileChannels;
  const int first_tile = blockIdx.x / tiles_k;
  const int tile_step = gridDim.x / tiles_k;
  const int tiles = ceil_div(num_patches(p), Tile::kPatches);

  if (threadIdx.x >= kConsumerThreads) {
    // The producer, one thread. A fresh barrier lets a wait for the parity before its first phase pass: parity ^ 1.
    if (threadIdx.x != kConsumerThreads) return;
    ptx::tma_prefetch(x_map);
    ptx::tma_prefetch(w_map);
    int i = 0;
    for (int tile = first_tile; tile < tiles; tile += tile_step) {
      for (int chunk = 0; chunk < chunks; ++chunk, ++i) {
        const int stage = stage_of<Tile::kStages>(i);
        ptx::mbarrier_wait(empty + stage, parity_of<Tile::kStages>(i) ^ 1);
        ptx::mbarrier_arrive_expect_tx(full + stage, Tile::kPatches * kHaloBytes);
        for (int patch = 0; patch < Tile::kPatches; ++patch) {
          const PatchPosition at = patch_position(p, tile * Tile::kPatches + patch);
          ptx::tma_load(stages + stage * Tile::kStageBytes + patch * kPatchBytes, x_map, full + stage, chunk * kChunk,
                        at.col - 1, at.row - 1, at.image);
        }
        if (tile != first_tile) continue;
        for (int tap = 0; tap < 9; ++tap) {
          ptx::Mbarrier* const filled = full_weights + chunk * 9 + tap;
          ptx::mbarrier_arrive_expect_tx(filled, kTapBytes);
          ptx::tma_load(weights + (chunk * 9 + tap) * kTapBytes, w_map, filled, chunk * kChunk, tap, k0);
        }
      }
    }
    return;
  }

  const int group = threadIdx.x / kGroupThreads;
  const int warp = threadIdx.x / 32;
  const bool elected = threadIdx.x % 32 == 0;
  unsigned char* const staging = stores + warp * PatchStore<T>::kBytes;
  int turn = group;
  for (int tile = first_tile + group * tile_step; tile < tiles; tile += kConsumerGroups * tile_step) {
    float sum[Tile::kPatches][kTileChannels / 2];
    turns.wait(turn);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int i = turn * chunks + chunk;
      const int stage = stage_of<Tile::kStages>(i);
      const unsigned char* const halo = stages + stage * Tile::kStageBytes;
      ptx::mbarrier_wait(full + stage, parity_of<Tile::kStages>(i));
#pragma unroll
      for (int tap = 0; tap < 9; ++tap) {
        ptx::mbarrier_wait(full_weights + chunk * 9 + tap, 0);
        ptx::wgmma_fence();
        const unsigned char* const w = weights + (chunk * 9 + tap) * kTapBytes;
        const unsigned char* const pixels = halo + (tap / 3 * kHalo + tap % 3) * kRowBytes;
#pragma unroll
        for (int kk = 0; kk < kChunk / kMmaK; ++kk) {
          const auto b_operand = ptx::wgmma_descriptor(w + kk * kMmaK * 2, 8 * kRowBytes);
#pragma unroll
          for (int patch = 0; patch < Tile::kPatches; ++patch) {
            // NOTE: rows of a patch lie a halo row apart, so groups of eight pixels are 10 x 128 bytes apart.
            const auto a_operand =
                ptx::wgmma_descriptor(pixels + patch * kPatchBytes + kk * kMmaK * 2, kHalo * kRowBytes);
            ptx::wgmma_m64<T, kTileChannels>(sum[patch], a_operand, b_operand, chunk > 0 || tap > 0 || kk > 0);
          }
        }
        ptx::wgmma_commit();
        if (elected && chunk == chunks - 1 && tap == 8) turns.pass_on(turn);
        ptx::wgmma_wait<1>();
        // The stage that the chunk before has read is free.
        if (elected && chunk > 0 && tap == 0) ptx::mbarrier_arrive(empty + stage_of<Tile::kStages>(i - 1));
      }
    }
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int patch = 0; patch < Tile::kPatches; ++patch) ptx::warpgroup_fence_operand(sum[patch]);
    if (elected) ptx::mbarrier_arrive(empty + stage_of<Tile::kStages>(turn * chunks + chunks - 1));

#pragma unroll
    for (int patch = 0; patch < Tile::kPatches; ++patch) {
      const PatchPosition at = patch_position(p, tile * Tile::kPatches + patch);
      PatchStore<T>::store(staging, p, sum[patch], at, k0, p.k, bias, y);
    }
    turn += kConsumerGroups;
  }
}

template <class T, class Tile>
KernelPlan<Fprop> tile_plan(const Problem& p, const char* name) {
  const auto bind = [p](const Fprop::Tensors& t, void*) {
    const auto size = [](int value) { return static_cast<std::uint64_t>(value); };
    const auto x_map =
        ptx::make_tensor_map(p.dtype, t.x, {size(p.c), size(p.w), size(p.h), size(p.n)}, {kChunk, kHalo, kHalo, 1});
    const auto w_map = ptx::make_tensor_map(p.dtype, t.w, {size(p.c), 9, size(p.k)}, {kChunk, 1, kTileChannels});
    const auto blocks = static_cast<unsigned>(num_blocks<Tile>(p, ceil_div(p.k, kTileChannels)));
    return bind_launch(conv3x3_fprop_v13_kernel<T, Tile>,
                       {.grid = blocks, .block = kThreads, .dynamic_smem = Tile::kSmemBytes}, p, x_map, w_map, t.bias,
                       static_cast<T*>(t.y));
  };
  return {.name = name, .bind = bind};
}

using TwoPatches = ResidentTile<2, 1>;
using OnePatch = ResidentTile<1, 2>;

std::vector<KernelPlan<Fprop>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Fprop>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      const int tiles_k = ceil_div(p.k, kTileChannels);
      std::vector<KernelPlan<Fprop>> plans = {tile_plan<T, OnePatch>(p, "1 patch")};
      if (p.c > kChunk) return plans;
      plans.push_back(tile_plan<T, TwoPatches>(p, "2 patches"));
      const bool two = most_patches<TwoPatches>(p, tiles_k) <= most_patches<OnePatch>(p, tiles_k);
      return with_default<Fprop>(std::move(plans), two ? 1 : 0);
    } else {
      return {};
    }
  });
}

const char* supports(const Problem& p) {
  if (p.c % 8 != 0 || p.k % 8 != 0) return "c or k is not a multiple of 8, of whole runs of 16 bytes";
  return p.c <= OnePatch::kMaxChunks * kChunk ? nullptr : "shared memory keeps the weights of at most 128 channels c";
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Fprop, {.plans = ladder::conv3x3::plans,
                                        .plan_names = {"1 patch", "2 patches"},
                                        .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::supports,
                                        .min_arch = 90,
                                        .arch_specific = true,
                                        .needs = "c at most 128; c and k multiples of 8"})

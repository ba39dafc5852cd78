// Idea:   the weights stay. A block keeps all nine taps of its 64 input channels in shared memory, as they lie in w, and reads
//         nothing but patches of dy; its two consumer warpgroups take tiles in turns: one stores while the other multiplies.
// Parent: v10.
// Why:    as of fprop v13: v10 reads a tile's weights again for each tile, and both its warpgroups store at the same time: 20
//         us at 64x64, 64 -> 64, for 11.5 us of products. Limiter left: the weights and the first patch before the first
//         product, the last tile's store.
// Needs:  sm_90a; k at most 128 and a multiple of 8 (the TMA's strides), c a multiple of 8; bf16 or fp16, as wgmma takes no
//         other MN-major.

#include "dev/conv3x3/resident_weights.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv3x3 {
namespace {

struct Weights : BackwardTaps {
  template <class T>
  static __device__ __forceinline__ void multiply(float (&sum)[kTileChannels / 2], std::uint64_t a, std::uint64_t b,
                                                  bool accumulate) {
    ptx::wgmma_m64_b_mn<T, kTileChannels>(sum, a, b, accumulate);
  }
};

template <class T, class Tile>
__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_dgrad_v11_kernel(Problem p, const __grid_constant__ ptx::TensorMap dy_map,
                             const __grid_constant__ ptx::TensorMap w_map, T* dx) {
  LADDER_DYN_SMEM(dynamic_smem);
  const ResidentSmem<Tile> smem(dynamic_smem);
  const int chunks = ceil_div(p.k, kChunk);
  if (threadIdx.x == 0) smem.init_barriers(chunks);
  __syncthreads();
  ptx::grid_dependency_wait();
  const int channel_tiles = ceil_div(p.c, kTileChannels);
  const ResidentShare share{.channel0 = static_cast<int>(blockIdx.x) % channel_tiles * kTileChannels,
                            .first_tile = static_cast<int>(blockIdx.x / channel_tiles),
                            .tile_step = static_cast<int>(gridDim.x / channel_tiles),
                            .tiles = ceil_div(num_patches(p), Tile::kPatches)};

  // The producer.
  if (threadIdx.x >= kConsumerThreads) {
    if (threadIdx.x == kConsumerThreads) load_resident<Weights>(p, smem, share, chunks, dy_map, w_map);
    return;
  }

  // The consumers: every other tile of the block's for each warpgroup.
  const int group = threadIdx.x / kGroupThreads;
  const bool elected = threadIdx.x % 32 == 0;
  unsigned char* const staging = smem.stores + threadIdx.x / 32 * PatchStore<T>::kBytes;
  int turn = group;
  for (int tile = share.first_tile + group * share.tile_step; tile < share.tiles;
       tile += kConsumerGroups * share.tile_step) {
    float sum[Tile::kPatches][kTileChannels / 2];
    multiply_resident<T, Weights>(smem, chunks, turn, elected, sum);
    store_resident<Weights, Tile>(p, staging, tile, share.channel0, sum, static_cast<const float*>(nullptr), dx);
    turn += kConsumerGroups;
  }
}

template <class T, class Tile>
KernelPlan<Dgrad> tile_plan(const Problem& p, const char* name) {
  const auto bind = [p](const Dgrad::Tensors& t, void*) {
    const auto blocks = static_cast<unsigned>(num_blocks<Tile>(p, Weights::channels_out(p)));
    return bind_launch(conv3x3_dgrad_v11_kernel<T, Tile>,
                       {.grid = blocks, .block = kThreads, .dynamic_smem = Tile::kSmemBytes, .overlaps_previous = true},
                       p, halo_map(p, t.dy, Weights::channels_in(p)), weight_map(p, t.w, kTileChannels, kChunk),
                       static_cast<T*>(t.dx));
  };
  return {.name = name, .bind = bind};
}

std::vector<KernelPlan<Dgrad>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Dgrad>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      return resident_plans<Dgrad, Weights>(
          p, [&](auto tile, const char* name) { return tile_plan<T, decltype(tile)>(p, name); });
    } else {
      return {};
    }
  });
}

const char* supports(const Problem& p) {
  if (p.c % 8 != 0 || p.k % 8 != 0) return "c or k is not a multiple of 8, of whole runs of 16 bytes";
  return p.k <= kMaxChannels ? nullptr : "shared memory keeps the weights of at most 128 channels k";
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Dgrad, {.plans = ladder::conv3x3::plans,
                                        .plan_names = {"1 patch", "2 patches"},
                                        .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::supports,
                                        .min_arch = 90,
                                        .arch_specific = true,
                                        .needs = "k at most 128; c and k multiples of 8"})

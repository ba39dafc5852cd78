// Idea:   the weights stay. A block keeps all nine taps of its 64 output channels in shared memory and reads nothing but
//         patches, and its two consumer warpgroups take tiles in turns: one stores while the other multiplies.
// Parent: v09.
// Why:    v09 reads a tile's weights again for each tile, which fills its stages, and both its warpgroups store at the same
//         time, in which the tensor cores idle. Limiter left: the weights and the first patch before the first product, the
//         last tile's store.
// Needs:  sm_90a; c at most 128 and a multiple of 8 (the TMA's strides), k a multiple of 8; bf16 or fp16.

#include "dev/conv3x3/resident_weights.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv3x3 {
namespace {

struct ResidentWeights : ForwardTaps {
  template <class T>
  static __device__ __forceinline__ void multiply(float (&sum)[kTileChannels / 2], std::uint64_t a, std::uint64_t b,
                                                  bool accumulate) {
    ptx::wgmma_m64<T, kTileChannels>(sum, a, b, accumulate);
  }
};

template <class T, class Tile, class P>
__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_fprop_v13_kernel(Problem p, const __grid_constant__ ptx::TensorMap x_map,
                             const __grid_constant__ ptx::TensorMap w_map, const P* bias, T* y) {
  LADDER_DYN_SMEM(dynamic_smem);
  const ResidentSmem<Tile> smem(dynamic_smem);
  const int chunks = ceil_div(p.c, kChunk);
  if (threadIdx.x == 0) smem.init_barriers(chunks);
  if (threadIdx.x == kConsumerThreads) {
    ptx::tma_prefetch(x_map);
    ptx::tma_prefetch(w_map);
  }
  __syncthreads();
  const int channel_tiles = ceil_div(p.k, kTileChannels);
  const TileRange work_range{.channel0 = static_cast<int>(blockIdx.x) % channel_tiles * kTileChannels,
                             .first_tile = static_cast<int>(blockIdx.x / channel_tiles),
                             .tile_step = static_cast<int>(gridDim.x / channel_tiles),
                             .tiles = ceil_div(num_patches(p), Tile::kPatches)};

  // The producer.
  if (threadIdx.x >= kConsumerThreads) {
    if (threadIdx.x == kConsumerThreads) load_resident<ResidentWeights>(p, smem, work_range, chunks, x_map, w_map);
    return;
  }

  // The consumers: every other tile of the block's for each warpgroup.
  const int group = threadIdx.x / kGroupThreads;
  const bool elected = threadIdx.x % 32 == 0;
  unsigned char* const staging = smem.stores + threadIdx.x / 32 * PatchStore<T>::kBytes;
  int turn = group;
  ptx::grid_dependency_wait();
  for (int tile = work_range.first_tile + group * work_range.tile_step; tile < work_range.tiles;
       tile += kConsumerGroups * work_range.tile_step) {
    float sum[Tile::kPatches][kTileChannels / 2];
    multiply_resident<T, ResidentWeights>(smem, chunks, turn, elected, sum);
    store_resident<ResidentWeights, Tile>(p, staging, tile, work_range.channel0, sum, bias, y);
    turn += kConsumerGroups;
  }
}

template <class T, class Tile>
KernelPlan<Fprop> tile_plan(const Problem& p, const char* name) {
  const auto bind = [p](const Fprop::Tensors& t, void*) {
    const auto blocks = static_cast<unsigned>(num_blocks<Tile>(p, ResidentWeights::channels_out(p)));
    return with_parameter_type<T>(p.params16, [&](auto parameter) {
      using P = decltype(parameter);
      return bind_launch(
          conv3x3_fprop_v13_kernel<T, Tile, P>,
          {.grid = blocks, .block = kThreads, .dynamic_smem = Tile::kSmemBytes, .overlaps_previous = true}, p,
          halo_map(p, t.x, ResidentWeights::channels_in(p)), weight_map(p, t.w, kTileChannels, kChunk),
          typed<P>(t.bias), static_cast<T*>(t.y));
    });
  };
  return {.name = name, .bind = bind};
}

std::vector<KernelPlan<Fprop>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Fprop>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      return resident_plans<Fprop, ResidentWeights>(
          p, [&](auto tile, const char* name) { return tile_plan<T, decltype(tile)>(p, name); });
    } else {
      return {};
    }
  });
}

const char* supports(const Problem& p) {
  if (const char* const why = bias_only(p)) return why;

  if (p.c % 8 != 0 || p.k % 8 != 0) return "c or k is not a multiple of 8, of whole runs of 16 bytes";
  return p.c <= kMaxChannels ? nullptr : "shared memory keeps the weights of at most 128 channels c";
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

// Idea:   input channels are the rows of wgmma's tiles, pixels their columns: 256 pixels share what is read of 64 channels'
//         weights, which lie in shared memory as in w and are an MN-major operand. Two warpgroups take patches of dy in
//         turns: one stores while the other multiplies.
// Parent: v10 (v11 is retired: README).
// Why:    as of fprop v15: with 64 pixels as rows and 64 channels as columns, v11 reads all that shared memory has a clock, so
//         fetches and stores hold the tensor cores up. Here 256 pixels share an operand of 64 channels. And tiles of 64
//         channels waste nothing at c = 192, where v10 takes two of 128. Limiter left: the weights and the first patch before
//         the first product, the last patch's store.
// Needs:  sm_90a; k at most 128, c and k multiples of 8 (the TMA's strides, whole runs of 16 bytes); bf16 or fp16, as wgmma
//         takes no other MN-major.

#include "core/early_tensors.h"
#include "dev/conv3x3/pixel_columns.h"

namespace ladder::conv3x3 {
namespace {

struct BackwardColumnWeights : BackwardTaps {
  template <class T, int kPixels>
  static __device__ __forceinline__ void multiply(float (&sum)[kPixels / 2], std::uint64_t a, std::uint64_t b,
                                                  bool accumulate) {
    ptx::wgmma_m64_a_mn<T, kPixels>(sum, a, b, accumulate);
  }
};

template <class T, class Tile>
__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_dgrad_v12_kernel(Problem p, const __grid_constant__ ptx::TensorMap dy_map,
                             const __grid_constant__ ptx::TensorMap w_map, T* dx, bool early_weights) {
  LADDER_DYN_SMEM(dynamic_smem);
  const ColumnSmem<Tile> smem(dynamic_smem);
  if (threadIdx.x == 0) smem.init_barriers();
  if (threadIdx.x == kConsumerThreads) {
    ptx::tma_prefetch(dy_map);
    ptx::tma_prefetch(w_map);
  }
  __syncthreads();
  const PatchRange work_range = patch_range_of_block<BackwardColumnWeights, Tile>(p);

  // The producer.
  if (threadIdx.x >= kConsumerThreads) {
    if (threadIdx.x == kConsumerThreads)
      load_columns<BackwardColumnWeights>(p, smem, work_range, dy_map, w_map, early_weights);
    return;
  }

  // The consumers: every other patch of the block's for each warpgroup.
  const int group = threadIdx.x / kGroupThreads;
  const bool elected = threadIdx.x % 32 == 0;
  auto out = store_of_group<T>(smem, work_range, group, p.c);
  int turn = group;
  ptx::grid_dependency_wait();
  for (int patch = work_range.first + group * work_range.step; patch < work_range.count;
       patch += kConsumerGroups * work_range.step, turn += kConsumerGroups) {
    float sum[Tile::kPixels / 2];
    multiply_columns<T, BackwardColumnWeights>(smem, work_range.chunks, turn, elected, sum);
    out.store(p, position_of<Tile>(p, patch), sum, {0.0f, 0.0f}, false, dx);
  }
}

template <class T, class Tile>
KernelPlan<Dgrad> tile_plan(const Problem& p, const char* name) {
  const auto bind = [p](const Dgrad::Tensors& t, void*) {
    return bind_launch(conv3x3_dgrad_v12_kernel<T, Tile>,
                       columns_config<Tile>(p, BackwardColumnWeights::channels_out(p)), p,
                       columns_map<Tile>(p, t.dy, BackwardColumnWeights::channels_in(p)),
                       weight_map(p, t.w, kChunk, kTileChannels), static_cast<T*>(t.dx), loads_early(t.w));
  };
  return {.name = name, .bind = bind};
}

std::vector<KernelPlan<Dgrad>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Dgrad>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      return column_plans<Dgrad, BackwardColumnWeights>(
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
                                        .plan_names = {"128 pixels", "256 pixels"},
                                        .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::supports,
                                        .min_arch = 90,
                                        .arch_specific = true,
                                        .needs = "k at most 128; c and k multiples of 8"})

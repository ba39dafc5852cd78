// Idea:   output channels are the rows of wgmma's tiles, pixels their columns: 256 pixels share what is read of 64 channels'
//         weights. The weights stay in shared memory, and two warpgroups take patches in turns: one stores while the other
//         multiplies. Bias, a row of an embedding and a residual image are added in the epilogue.
// Parent: v13, with v14's addends.
// Why:    with 64 pixels as rows and 64 channels as columns, v13 and v14 read 128 bytes of shared memory a clock, all there
//         is, so fetches and stores hold the tensor cores up. Here it is 80. A channel is a lane's own,
//         so bias and embedding are two registers; stmatrix turns the sums back into rows of pixels. Limiter left: the
//         weights and the first patch before the first product, the last patch's store.
// Needs:  sm_90a; c at most 128, c and k multiples of 8 (the TMA's strides, whole runs of 16 bytes); an fp32 bias; bf16 or
//         fp16.

#include "core/early_tensors.h"
#include "dev/conv3x3/pixel_columns.h"

namespace ladder::conv3x3 {
namespace {

struct ForwardColumnWeights : ForwardTaps {
  template <class T, int kPixels>
  static __device__ __forceinline__ void multiply(float (&sum)[kPixels / 2], std::uint64_t a, std::uint64_t b,
                                                  bool accumulate) {
    ptx::wgmma_m64<T, kPixels>(sum, a, b, accumulate);
  }
};

template <class T, class Tile>
__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_fprop_v15_kernel(Problem p, const __grid_constant__ ptx::TensorMap x_map,
                             const __grid_constant__ ptx::TensorMap w_map, Addends<T> addends, T* y,
                             bool early_weights) {
  LADDER_DYN_SMEM(dynamic_smem);
  const ColumnSmem<Tile> smem(dynamic_smem);
  if (threadIdx.x == 0) smem.init_barriers();
  if (threadIdx.x == kConsumerThreads) {
    ptx::tma_prefetch(x_map);
    ptx::tma_prefetch(w_map);
  }
  __syncthreads();
  const PatchRange work_range = patch_range_of_block<ForwardColumnWeights, Tile>(p);

  // The producer.
  if (threadIdx.x >= kConsumerThreads) {
    if (threadIdx.x == kConsumerThreads)
      load_columns<ForwardColumnWeights>(p, smem, work_range, x_map, w_map, early_weights);
    return;
  }

  // The consumers: every other patch of the block's for each warpgroup.
  const int group = threadIdx.x / kGroupThreads;
  const bool elected = threadIdx.x % 32 == 0;
  auto out = store_of_group<T>(smem, work_range, group, p.k);
  int turn = group;
  ptx::grid_dependency_wait();
  for (int patch = work_range.first + group * work_range.step; patch < work_range.count;
       patch += kConsumerGroups * work_range.step, turn += kConsumerGroups) {
    const PatchPosition position = position_of<Tile>(p, patch);
    const float2 added = out.fetch(p, position, addends);
    float sum[Tile::kPixels / 2];
    multiply_columns<T, ForwardColumnWeights>(smem, work_range.chunks, turn, elected, sum);
    out.store(p, position, sum, added, addends.residual != nullptr, y);
  }
}

template <class T, class Tile>
KernelPlan<Fprop> tile_plan(const Problem& p, const char* name) {
  const auto bind = [p](const Fprop::Tensors& t, void*) {
    return bind_launch(
        conv3x3_fprop_v15_kernel<T, Tile>, columns_config<Tile>(p, ForwardColumnWeights::channels_out(p)), p,
        columns_map<Tile>(p, t.x, ForwardColumnWeights::channels_in(p)), weight_map(p, t.w, kTileChannels, kChunk),
        Addends<T>::of(p, t), static_cast<T*>(t.y), loads_early(t.w));
  };
  return {.name = name, .bind = bind};
}

std::vector<KernelPlan<Fprop>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Fprop>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      return column_plans<Fprop, ForwardColumnWeights>(
          p, [&](auto tile, const char* name) { return tile_plan<T, decltype(tile)>(p, name); });
    } else {
      return {};
    }
  });
}

const char* supports(const Problem& p) {
  if (p.c % 8 != 0 || p.k % 8 != 0) return "c or k is not a multiple of 8, of whole runs of 16 bytes";
  if (p.c > kMaxChannels) return "shared memory keeps the weights of at most 128 channels c";
  return fp32_bias_only(p);
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Fprop, {.plans = ladder::conv3x3::plans,
                                        .plan_names = {"128 pixels", "256 pixels"},
                                        .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::supports,
                                        .min_arch = 90,
                                        .arch_specific = true,
                                        .needs = "c at most 128; c and k multiples of 8"})

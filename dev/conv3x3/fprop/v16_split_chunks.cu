// Idea:   for small images, the channels c are split over a cluster of four blocks: each has four patches and 64 output
//         channels, but a quarter of c, and sends its sums of three of the patches to the blocks that finish those.
// Parent: v15, whose epilogue this is.
// Why:    at 8x8 v14 gives a block one patch and 64 channels, and all their weights: 346 KB from L2 for 4,608 clocks of
//         products at c = 256, which take 9,000 to fetch. Four patches share a weight here: 125 KB, and the products' reads
//         of shared memory and the fetches just fit. The exchange is 48 KB a block through distributed shared memory.
//         Limiter left: the launch, the first fetch, the exchange and the store stand in line, a quarter of the time each.
// Needs:  sm_90a, clusters; c and k multiples of 8 (the TMA's strides, whole runs of 16 bytes); an fp32 bias; bf16 or fp16.

#include "dev/conv3x3/split_chunks.h"

namespace ladder::conv3x3 {
namespace {

// w [k][tap][c] as it lies: a row of shared memory is 64 channels c of an output channel, which makes the operand K-major.
struct Weights {
  static __host__ __device__ int channels_in(const Problem& p) { return p.c; }
  static __host__ __device__ int channels_out(const Problem& p) { return p.k; }

  static __device__ __forceinline__ void load(unsigned char* to, const ptx::TensorMap& map, ptx::Mbarrier* full,
                                              int chunk, int tap, int k0) {
    ptx::tma_load(to, map, full, chunk * kChunk, tap, k0);  // [64 of k][64 of c]
  }
  static __device__ __forceinline__ std::uint64_t operand(const unsigned char* weights, int step) {
    return ptx::wgmma_descriptor(weights + step * kMmaK * 2, 8 * kRowBytes);
  }
  template <class T, int kPixels>
  static __device__ __forceinline__ void multiply(float (&sum)[kPixels / 2], std::uint64_t a, std::uint64_t b,
                                                  bool accumulate) {
    ptx::wgmma_m64<T, kPixels>(sum, a, b, accumulate);
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_fprop_v16_kernel(Problem p, const __grid_constant__ ptx::TensorMap x_map,
                             const __grid_constant__ ptx::TensorMap w_map, Addends<T> addends, T* y) {
  LADDER_DYN_SMEM(dynamic_smem);
  const SplitSmem smem(dynamic_smem);
  const Part part = Part::of_block<Weights>(p);
  if (threadIdx.x == 0) smem.init_barriers(part.senders());
  __syncthreads();
  ptx::cluster_arrive_relaxed();  // this block has started
  ptx::grid_dependency_wait();

  // The producer.
  if (threadIdx.x >= kConsumerThreads) {
    if (threadIdx.x == kConsumerThreads) load_chunks<Weights>(p, smem, part, x_map, w_map);
    ptx::cluster_wait();
    return;
  }

  // The consumers: two of the four patches for each warpgroup, over the block's chunks.
  const int group = threadIdx.x / kGroupThreads;
  const bool owns = part.rank / kGroupPatches == group;  // the patch that the block finishes
  const PatchPosition at = patch_position(p, part.first_patch + part.rank);
  ColumnStore<T, kPatchPixels> store{
      .rows = smem.rows, .met = smem.met, .channel0 = part.channel0, .channels = Weights::channels_out(p)};
  float2 added{};
  if (owns) added = store.fetch(p, at, addends);
  float sum[kGroupPatches][kPatchPixels / 2];
  multiply_chunks<T, Weights>(smem, part, group, sum);

  // The exchange, once all blocks of the cluster have started.
  ptx::cluster_wait();
  send_sums(smem, part, group, sum);
  if (!owns) return;
  float whole[kPatchPixels / 2];
  receive_sums(smem, part, sum, whole);
  store.store(p, at, whole, added, addends.residual != nullptr, y);
}

std::vector<KernelPlan<Fprop>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Fprop>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      const auto bind = [p](const Fprop::Tensors& t, void*) {
        return bind_launch(conv3x3_fprop_v16_kernel<T>, split_config(p, Weights::channels_out(p)), p,
                           halo_map(p, t.x, Weights::channels_in(p)), weight_map(p, t.w, kTileChannels, kChunk),
                           Addends<T>::of(p, t), static_cast<T*>(t.y));
      };
      return {{.name = "clusters of 4", .bind = bind}};
    } else {
      return {};
    }
  });
}

const char* supports(const Problem& p) {
  if (p.c % 8 != 0 || p.k % 8 != 0) return "c or k is not a multiple of 8, of whole runs of 16 bytes";
  return fp32_bias_only(p);
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Fprop, {.plans = ladder::conv3x3::plans,
                                        .plan_names = {"clusters of 4"},
                                        .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::supports,
                                        .min_arch = 90,
                                        .arch_specific = true,
                                        .needs = "c and k multiples of 8"})

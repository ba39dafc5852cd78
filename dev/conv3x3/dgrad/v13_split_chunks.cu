// Idea:   for small images, the channels k are split over a cluster of four blocks: each has four patches and 64 channels of
//         dx, but a quarter of k, and sends its sums of three of the patches to the blocks that finish those.
// Parent: v12, whose epilogue this is.
// Why:    as of fprop v16: at 8x8 v10 gives a block one patch and 64 channels, and all their weights, 346 KB from L2 at k =
//         256, which take twice as long to fetch as to multiply. Four patches share a weight here. Limiter left: the launch,
//         the first fetch, the exchange and the store stand in line, a quarter of the time each.
// Needs:  sm_90a, clusters; c and k multiples of 8 (the TMA's strides, whole runs of 16 bytes); bf16 or fp16, as wgmma takes
//         no other MN-major.

#include "dev/conv3x3/split_chunks.h"

namespace ladder::conv3x3 {
namespace {

// w [k][tap][c] as it lies: a row of shared memory is 64 channels c of one k that is summed over, which makes the operand
// MN-major. Taps are counted backwards.
struct Weights {
  static __host__ __device__ int channels_in(const Problem& p) { return p.k; }
  static __host__ __device__ int channels_out(const Problem& p) { return p.c; }

  static __device__ __forceinline__ void load(unsigned char* to, const ptx::TensorMap& map, ptx::Mbarrier* full,
                                              int chunk, int tap, int c0) {
    ptx::tma_load(to, map, full, c0, 8 - tap, chunk * kChunk);  // [64 of k][64 of c]
  }
  static __device__ __forceinline__ std::uint64_t operand(const unsigned char* weights, int step) {
    return ptx::wgmma_descriptor_mn(weights + step * kMmaK * kRowBytes, 8 * kRowBytes, kTapBytes);
  }
  template <class T, int kPixels>
  static __device__ __forceinline__ void multiply(float (&sum)[kPixels / 2], std::uint64_t a, std::uint64_t b,
                                                  bool accumulate) {
    ptx::wgmma_m64_a_mn<T, kPixels>(sum, a, b, accumulate);
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_dgrad_v13_kernel(Problem p, const __grid_constant__ ptx::TensorMap dy_map,
                             const __grid_constant__ ptx::TensorMap w_map, T* dx) {
  LADDER_DYN_SMEM(dynamic_smem);
  const SplitSmem smem(dynamic_smem);
  const Part part = Part::of_block<Weights>(p);
  if (threadIdx.x == 0) smem.init_barriers(part.senders());
  __syncthreads();
  ptx::cluster_arrive_relaxed();  // this block has started
  ptx::grid_dependency_wait();

  // The producer.
  if (threadIdx.x >= kConsumerThreads) {
    if (threadIdx.x == kConsumerThreads) load_chunks<Weights>(p, smem, part, dy_map, w_map);
    ptx::cluster_wait();
    return;
  }

  // The consumers: two of the four patches for each warpgroup, over the block's chunks.
  const int group = threadIdx.x / kGroupThreads;
  const bool owns = part.rank / kGroupPatches == group;  // the patch that the block finishes
  const PatchPosition at = patch_position(p, part.first_patch + part.rank);
  ColumnStore<T, kPatchPixels> store{
      .rows = smem.rows, .met = smem.met, .channel0 = part.channel0, .channels = Weights::channels_out(p)};
  float sum[kGroupPatches][kPatchPixels / 2];
  multiply_chunks<T, Weights>(smem, part, group, sum);

  // The exchange, once all blocks of the cluster have started.
  ptx::cluster_wait();
  send_sums(smem, part, group, sum);
  if (!owns) return;
  float whole[kPatchPixels / 2];
  receive_sums(smem, part, sum, whole);
  store.store(p, at, whole, {0.0f, 0.0f}, false, dx);
}

std::vector<KernelPlan<Dgrad>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Dgrad>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      const auto bind = [p](const Dgrad::Tensors& t, void*) {
        return bind_launch(conv3x3_dgrad_v13_kernel<T>, split_config(p, Weights::channels_out(p)), p,
                           halo_map(p, t.dy, Weights::channels_in(p)), weight_map(p, t.w, kChunk, kTileChannels),
                           static_cast<T*>(t.dx));
      };
      return {{.name = "clusters of 4", .bind = bind}};
    } else {
      return {};
    }
  });
}

const char* supports(const Problem& p) {
  return p.c % 8 == 0 && p.k % 8 == 0 ? nullptr : "c or k is not a multiple of 8, of whole runs of 16 bytes";
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Dgrad, {.plans = ladder::conv3x3::plans,
                                        .plan_names = {"clusters of 4"},
                                        .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::supports,
                                        .min_arch = 90,
                                        .arch_specific = true,
                                        .needs = "c and k multiples of 8"})

// Idea:   Hopper's own path. The TMA fetches a patch of dy and the halo of x around it, and wgmma multiplies both as they
//         lie, pixels outermost (MN-major operands). Three warpgroups hold three taps each, a row of the filter; one
//         instruction's 192 columns are all three, for the next tap to the right is the same 64 channels one pixel on.
// Parent: v05.
// Why:    v05 is held to mma.sync's two thirds of the tensor rate and moves every fragment through registers. Here
//         operands stay in shared memory, no thread computes an address, and 21 KB fetched serve 4.7 MFLOP. Limiter left:
//         at the end every block writes 147 KB of partial sums and a second kernel reads them again.
// Needs:  sm_90a; c and k multiples of 16 bytes (the TMA's strides); bf16 or fp16: wgmma takes tf32 operands K-major only,
//         pixels innermost, which NHWC does not have. Any h and w: patches may hang over the edge.

#include "dev/common/ring.h"
#include "dev/conv3x3/wgrad_patch.h"
#include "dev/conv3x3/wgrad_split.h"
#include "dev/ptx/mbarrier.h"
#include "dev/ptx/tma.h"
#include "dev/ptx/wgmma.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kGroups = 3;  // consumer warpgroups: one for each row of the filter
constexpr int kConsumerWarps = 4 * kGroups;
constexpr int kProducerWarp = kConsumerWarps;
constexpr int kBiasWarp = kProducerWarp + 1;
constexpr int kThreads = (kBiasWarp + 1) * 32;  // 448: 144 registers a thread
constexpr int kColumns = 3 * kTileChannels;     // of a warpgroup's sums: (s, c)

constexpr int kRowBytes = 128;  // of a pixel: 64 channels of 16 bits
constexpr int kPatchBytes = kPatchPixels * kRowBytes;
constexpr int kHaloBytes = kHaloPixels * kRowBytes;
constexpr int kStageBytes = kPatchBytes + (kHaloBytes + 1023) / 1024 * 1024;  // a whole number of swizzle patterns
constexpr int kStages = 8;
constexpr std::size_t kSmemBytes = std::size_t{kStages} * kStageBytes + 2 * kStages * sizeof(ptx::Mbarrier);
static_assert(kSmemBytes <= 227 * 1024, "what a block of sm_90 can have");

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_wgrad_v06_kernel(Problem p, Split split, const __grid_constant__ ptx::TensorMap x_map,
                             const __grid_constant__ ptx::TensorMap dy_map, float* partial) {
  LADDER_DYN_SMEM(smem);  // [stage]: dy [8 x 8 pixels][128 bytes], x [10 x 10 pixels][128 bytes]
  auto* const full = reinterpret_cast<ptx::Mbarrier*>(smem + kStages * kStageBytes);
  ptx::Mbarrier* const empty = full + kStages;

  const int tiles_c = ceil_div(p.c, kTileChannels);
  const int tiles_k = ceil_div(p.k, kTileChannels);
  const int c0 = blockIdx.x % tiles_c * kTileChannels;
  const int k0 = blockIdx.x / tiles_c % tiles_k * kTileChannels;
  const int split_idx = blockIdx.x / tiles_c / tiles_k;
  const int begin = split_idx * split.units_per_split;
  const int count = min(split.units_per_split, num_patches(p) - begin);
  const bool accumulates_bias_gradient = p.bias && c0 == 0;

  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, kConsumerWarps + (accumulates_bias_gradient ? 1 : 0));
    }
    ptx::mbarrier_fence_init();
  }
  __syncthreads();

  float* const out = partial + static_cast<long long>(split_idx) * partial_row(p);
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;

  if (warp == kProducerWarp) {
    if (lane != 0) return;
    ptx::tma_prefetch(x_map);
    ptx::tma_prefetch(dy_map);
    PatchPosition position = patch_position(p, begin);
    for (int i = 0; i < count; ++i, position.advance(p)) {
      unsigned char* const stage = smem + stage_of<kStages>(i) * kStageBytes;
      ptx::Mbarrier* const filled = full + stage_of<kStages>(i);
      // A fresh barrier lets a wait for the parity before its first phase pass.
      ptx::mbarrier_wait(empty + stage_of<kStages>(i), parity_of<kStages>(i) ^ 1);
      ptx::mbarrier_arrive_expect_tx(filled, kPatchBytes + kHaloBytes);
      ptx::tma_load(stage, dy_map, filled, k0, position.col, position.row, position.image);
      ptx::tma_load(stage + kPatchBytes, x_map, filled, c0, position.col - 1, position.row - 1, position.image);
    }
    return;
  }

  if (warp == kBiasWarp) {
    // dbias from the same patches: a lane has two output channels, a word of each pixel's swizzled row.
    if (!accumulates_bias_gradient) return;
    float sum[2] = {};
    for (int i = 0; i < count; ++i) {
      ptx::mbarrier_wait(full + stage_of<kStages>(i), parity_of<kStages>(i));
      const unsigned char* const patch = smem + stage_of<kStages>(i) * kStageBytes;
#pragma unroll 8
      for (int pixel = 0; pixel < kPatchPixels; ++pixel) {
        const T* const pair =
            reinterpret_cast<const T*>(patch + pixel * kRowBytes + (lane / 4 ^ pixel % 8) * 16) + lane % 4 * 2;
        sum[0] += to_float(pair[0]);
        sum[1] += to_float(pair[1]);
      }
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(empty + stage_of<kStages>(i));
    }
    const int k = k0 + lane * 2;
    if (k < p.k) *reinterpret_cast<float2*>(out + bias_offset(p) + k) = {sum[0], sum[1]};
    return;
  }

  const int r = warp / 4;  // the warpgroup's row of the filter
  float sum[kColumns / 2];
  for (int i = 0; i < count; ++i) {
    ptx::mbarrier_wait(full + stage_of<kStages>(i), parity_of<kStages>(i));
    const unsigned char* const patch = smem + stage_of<kStages>(i) * kStageBytes;
    const unsigned char* const halo = patch + kPatchBytes + r * kHalo * kRowBytes;
    ptx::wgmma_fence();
#pragma unroll
    for (int row = 0; row < kPatch; row += 2) {
      // NOTE: a K step is two image rows of eight pixels: 8 rows of memory apart in dy, a halo's row in x. The next 64
      // columns begin one row of memory on: the next pixel.
      const auto a = ptx::wgmma_descriptor_mn(patch + row * kPatch * kRowBytes, kPatch * kRowBytes, kRowBytes);
      const auto b = ptx::wgmma_descriptor_mn(halo + row * kHalo * kRowBytes, kHalo * kRowBytes, kRowBytes);
      ptx::wgmma_m64_mn<T, kColumns>(sum, a, b, i > 0 || row > 0);
    }
    ptx::wgmma_commit();
    // The stage that the multiplications before these have read is free.
    ptx::wgmma_wait<1>();
    if (lane == 0 && i > 0) ptx::mbarrier_arrive(empty + stage_of<kStages>(i - 1));
  }
  ptx::wgmma_wait<0>();
  ptx::warpgroup_fence_operand(sum);

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int k = k0 + warp % 4 * 16 + lane / 4 + 8 * half;
    if (k >= p.k) continue;
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      const int s = j * 8 / kTileChannels;
      const int c = c0 + j * 8 % kTileChannels + lane % 4 * 2;
      if (c >= p.c) continue;
      *reinterpret_cast<float2*>(out + ((k * 3 + r) * 3 + s) * p.c + c) = {sum[4 * j + 2 * half],
                                                                           sum[4 * j + 2 * half + 1]};
    }
  }
}

// A patch takes 3 x 4 wgmmas of 96 clocks at some 1.6 GHz.
Split split_of(const Problem& p) {
  const BlockCost cost{.unit_ns = 720, .start_ns = 4000, .blocks_per_sm = 1};
  return plan_split(partial_row(p), num_patches(p), num_patch_tiles(p), cost).split;
}

template <class T>
KernelPlan<Wgrad> split_plan(const Problem& p, const char* name, Split split) {
  const auto bind = [p, split](const Wgrad::Tensors& t, void* workspace) {
    auto* const partial = static_cast<float*>(workspace);
    const auto size = [](int value) { return static_cast<std::uint64_t>(value); };
    const auto x_map = ptx::make_tensor_map(p.dtype, t.x, {size(p.c), size(p.w), size(p.h), size(p.n)},
                                            {kTileChannels, kHalo, kHalo, 1});
    const auto dy_map = ptx::make_tensor_map(p.dtype, t.dy, {size(p.k), size(p.w), size(p.h), size(p.n)},
                                             {kTileChannels, kPatch, kPatch, 1});
    const auto blocks = static_cast<unsigned>(num_patch_tiles(p)) * split.splits;
    return in_order(
        {bind_launch(conv3x3_wgrad_v06_kernel<T>, {.grid = blocks, .block = kThreads, .dynamic_smem = kSmemBytes}, p,
                     split, x_map, dy_map, partial),
         bind_reduce<T>(p, split, partial, t)});
  };
  return {.name = name, .workspace_bytes = partial_bytes(p, split), .bind = bind};
}

std::vector<KernelPlan<Wgrad>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Wgrad>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      return {split_plan<T>(p, "pixels split over blocks", split_of(p)),
              split_plan<T>(p, "pixels in one piece", {1, num_patches(p)})};
    } else {
      return {};
    }
  });
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Wgrad, {.plans = ladder::conv3x3::plans,
                                        .plan_names = {"pixels split over blocks", "pixels in one piece"},
                                        .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::channels_for_tma,
                                        .min_arch = 90,
                                        .arch_specific = true,
                                        .needs = "c and k multiples of 16 bytes"})

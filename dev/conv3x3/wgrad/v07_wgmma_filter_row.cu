// Idea:   a block owns one row of the filter instead of all three: 64 output x 64 input channels x 3 taps, the sums of one
//         warpgroup. Two producer warps take turns at its patches.
// Parent: v06.
// Why:    with a block an SM, the partial sums are as many as the card's accumulators: v06's 128 blocks write and read
//         19 MB whatever the shape, longer than the smaller shapes multiply. A third of the accumulators is a third of
//         that, one warpgroup alone keeps the tensor cores busy, and three times the tiles divide over the SMs more
//         evenly. The price: dy crosses from L2 three times, 47 bytes a clock and SM, just below where the fill would
//         slow the multiplications. A patch takes 384 clocks, less than one thread needs for its copies: hence two.
// Needs:  as v06: sm_90a; c and k multiples of 16 bytes; bf16 or fp16.

// Shared memory:
//
//     12 x 18 KB     ring: stage = dy [8 x 8 pixels][128 bytes], x [8 x 10 pixels][128 bytes]; swizzled by 128 bytes
//     12 x 8 bytes   full[stage]: 1 arrival and 18 KB by TMA
//     12 x 8 bytes   empty[stage]: 4 arrivals, 8 in a block that sums dbias
//
// Warps, each over the block's patches:
//
//     0..3   dw [64 k][3 s][64 c] of the filter's row r
//     4, 5   producers, of the even and the odd patches, ahead by up to 12
//     6..9   dbias, from dy of the same stages; idle but in blocks of r = 0 and the first channels c

#include "dev/common/ring.h"
#include "dev/conv3x3/wgrad_patch.h"
#include "dev/conv3x3/wgrad_split.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/mbarrier.h"
#include "dev/ptx/tma.h"
#include "dev/ptx/wgmma.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kConsumerWarps = 4;
constexpr int kProducers = 2;
constexpr int kFirstBiasWarp = kConsumerWarps + kProducers;
constexpr int kBiasWarps = 4;  // one alone takes longer for a patch than its multiplications do
constexpr int kThreads = (kFirstBiasWarp + kBiasWarps) * 32;
constexpr int kColumns = 3 * kTileChannels;  // of the block's sums: (s, c)

constexpr int kRowBytes = 128;  // of a pixel: 64 channels of 16 bits
constexpr int kPatchBytes = kPatchPixels * kRowBytes;
constexpr int kViewBytes = kPatch * kHalo * kRowBytes;  // of x: the patch's rows, with a pixel more at either end
constexpr int kStageBytes = kPatchBytes + kViewBytes;
constexpr int kStages = 12;
static_assert(kStageBytes % 1024 == 0 && kPatchBytes % 1024 == 0, "whole swizzle patterns");
constexpr std::size_t kSmemBytes = std::size_t{kStages} * kStageBytes + 2 * kStages * sizeof(ptx::Mbarrier);
static_assert(kSmemBytes <= 227 * 1024, "what a block of sm_90 can have");

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_wgrad_v07_kernel(Problem p, Split split, const __grid_constant__ ptx::TensorMap x_map,
                             const __grid_constant__ ptx::TensorMap dy_map, float* partial) {
  LADDER_DYN_SMEM(smem);  // [stage]: dy [8 x 8 pixels][128 bytes], x [8 x 10 pixels][128 bytes]
  auto* const full = reinterpret_cast<ptx::Mbarrier*>(smem + kStages * kStageBytes);
  ptx::Mbarrier* const empty = full + kStages;

  const int tiles_c = ceil_div(p.c, kTileChannels);
  const int tiles_k = ceil_div(p.k, kTileChannels);
  const int r = blockIdx.x % 3;  // the block's row of the filter
  const int c0 = blockIdx.x / 3 % tiles_c * kTileChannels;
  const int k0 = blockIdx.x / 3 / tiles_c % tiles_k * kTileChannels;
  const int split_idx = blockIdx.x / 3 / tiles_c / tiles_k;
  const int begin = split_idx * split.units_per_split;
  const int count = min(split.units_per_split, num_patches(p) - begin);
  const bool accumulates_bias_gradient = p.bias && c0 == 0 && r == 0;

  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, kConsumerWarps + (accumulates_bias_gradient ? kBiasWarps : 0));
    }
    ptx::mbarrier_fence_init();
  }
  if (threadIdx.x == kConsumerWarps * 32) {
    ptx::tma_prefetch(x_map);
    ptx::tma_prefetch(dy_map);
  }
  __syncthreads();
  ptx::grid_dependency_wait();

  float* const out = partial + static_cast<long long>(split_idx) * partial_row(p);
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;

  if (warp >= kConsumerWarps && warp < kFirstBiasWarp) {
    if (lane != 0) return;
    const int producer = warp - kConsumerWarps;
    PatchPosition position = patch_position(p, begin);
    for (int i = 0; i < count; ++i, position.advance(p)) {
      if (i % kProducers != producer) continue;
      unsigned char* const stage = smem + stage_of<kStages>(i) * kStageBytes;
      ptx::Mbarrier* const filled = full + stage_of<kStages>(i);
      // A fresh barrier lets a wait for the parity before its first phase pass.
      ptx::mbarrier_wait(empty + stage_of<kStages>(i), parity_of<kStages>(i) ^ 1);
      ptx::mbarrier_arrive_expect_tx(filled, kPatchBytes + kViewBytes);
      ptx::tma_load(stage, dy_map, filled, k0, position.col, position.row, position.image);
      ptx::tma_load(stage + kPatchBytes, x_map, filled, c0, position.col - 1, position.row + r - 1, position.image);
    }
    ptx::grid_dependency_launch();
    return;
  }

  if (warp >= kFirstBiasWarp) {
    // dbias from the same patches: a warp has sixteen output channels, eight words of each pixel's swizzled row, a lane one
    // of these in every fourth pair of pixels. Pairs an even distance apart keep the lanes in different banks.
    if (!accumulates_bias_gradient) return;
    const int word = (warp - kFirstBiasWarp) * 8 + lane % 8;
    float sum[2] = {};
    for (int i = 0; i < count; ++i) {
      ptx::mbarrier_wait(full + stage_of<kStages>(i), parity_of<kStages>(i));
      const unsigned char* const patch = smem + stage_of<kStages>(i) * kStageBytes;
#pragma unroll
      for (int j = 0; j < kPatchPixels / 4; ++j) {
        const int pixel = j / 2 * 8 + lane / 8 * 2 + j % 2;
        const T* const pair =
            reinterpret_cast<const T*>(patch + pixel * kRowBytes + (word / 4 ^ pixel % 8) * 16) + word % 4 * 2;
        sum[0] += to_float(pair[0]);
        sum[1] += to_float(pair[1]);
      }
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(empty + stage_of<kStages>(i));
    }
#pragma unroll
    for (int distance = 8; distance < 32; distance *= 2) {
      sum[0] += __shfl_xor_sync(0xffffffff, sum[0], distance);
      sum[1] += __shfl_xor_sync(0xffffffff, sum[1], distance);
    }
    const int k = k0 + word * 2;
    if (lane < 8 && k < p.k) *reinterpret_cast<float2*>(out + bias_offset(p) + k) = {sum[0], sum[1]};
    return;
  }

  float sum[kColumns / 2];
  for (int i = 0; i < count; ++i) {
    ptx::mbarrier_wait(full + stage_of<kStages>(i), parity_of<kStages>(i));
    const unsigned char* const patch = smem + stage_of<kStages>(i) * kStageBytes;
    const unsigned char* const view = patch + kPatchBytes;
    ptx::wgmma_fence();
#pragma unroll
    for (int row = 0; row < kPatch; row += 2) {
      // NOTE: a K step is two image rows of eight pixels: 8 rows of memory apart in dy, a halo's row in x. The next 64
      // columns begin one row of memory on: the next pixel.
      const auto a = ptx::wgmma_descriptor_mn(patch + row * kPatch * kRowBytes, kPatch * kRowBytes, kRowBytes);
      const auto b = ptx::wgmma_descriptor_mn(view + row * kHalo * kRowBytes, kHalo * kRowBytes, kRowBytes);
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
    const int k = k0 + warp * 16 + lane / 4 + 8 * half;
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

int num_tiles(const Problem& p) { return 3 * num_patch_tiles(p); }

// A patch takes 4 wgmmas of 96 clocks, and 18 KB from L2 of which all SMs together get some 9 TB/s.
Split split_of(const Problem& p) {
  const BlockCost cost{.unit_ns = 280, .start_ns = 4000, .blocks_per_sm = 1};
  return plan_split(partial_row(p), num_patches(p), num_tiles(p), cost).split;
}

template <class T>
KernelPlan<Wgrad> split_plan(const Problem& p, const char* name, Split split) {
  const auto bind = [p, split](const Wgrad::Tensors& t, void* workspace) {
    auto* const partial = static_cast<float*>(workspace);
    const auto size = [](int value) { return static_cast<std::uint64_t>(value); };
    const auto x_map = ptx::make_tensor_map(p.dtype, t.x, {size(p.c), size(p.w), size(p.h), size(p.n)},
                                            {kTileChannels, kHalo, kPatch, 1});
    const auto dy_map = ptx::make_tensor_map(p.dtype, t.dy, {size(p.k), size(p.w), size(p.h), size(p.n)},
                                             {kTileChannels, kPatch, kPatch, 1});
    const auto blocks = static_cast<unsigned>(num_tiles(p)) * split.splits;
    return in_order(
        {bind_launch(conv3x3_wgrad_v07_kernel<T>,
                     {.grid = blocks, .block = kThreads, .dynamic_smem = kSmemBytes, .overlaps_previous = true}, p,
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

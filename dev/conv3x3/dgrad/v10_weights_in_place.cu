// Idea:   weights read where they lie. A box of the TMA brings 64 output channels x 64 input channels of one tap as they are
//         in w, and wgmma takes it as an MN-major operand: the tensor cores exchange the channels, the tap's number is
//         counted backwards, and nothing flips w beforehand.
// Parent: v07.
// Why:    v07's flip is a launch of 2 to 3 us before each of a step's 45 data gradients, a tenth of their time, and all of it
//         latency. Limiter: the forward v09's, whose tiles, rings and epilogue these are: both warpgroups store at the same
//         time, so the tensor cores idle through each tile's end.
// Needs:  sm_90a; c and k multiples of 16 bytes (the TMA's strides); bf16 or fp16, as wgmma takes no other MN-major.

#include <algorithm>

#include "core/backend.h"
#include "dev/common/ring.h"
#include "dev/conv3x3/patches.h"
#include "dev/ptx/mbarrier.h"
#include "dev/ptx/setmaxnreg.h"
#include "dev/ptx/tma.h"
#include "dev/ptx/wgmma.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kChunk = 64;  // output channels of dy that are summed over at a time
constexpr int kRowBytes = kChunk * 2;
constexpr int kMmaK = 16;
constexpr int kMmaSteps = kChunk / kMmaK;
static_assert(kPatchPixels == 64, "the rows of a wgmma");
constexpr int kHaloBytes = kHaloPixels * kRowBytes;
constexpr int kPatchBytes = (kHaloBytes + 1023) / 1024 * 1024;  // a whole number of swizzle patterns
constexpr int kBoxChannels = 64;                                // input channels that a box of weights has
constexpr int kBoxBytes = kChunk * kBoxChannels * 2;

constexpr int kConsumerWarps = 8;
constexpr int kThreads = (kConsumerWarps + 4) * 32;  // registers move between whole warpgroups, so the producer is one
constexpr int kConsumerRegisters = 232;
constexpr int kProducerRegisters = 40;
static_assert(256 * kConsumerRegisters + 128 * kProducerRegisters <= 65536, "the register file");

// A warp's 16 pixels of 64 channels on their way to dx; 16 bytes of padding spread eight rows over all banks.
constexpr int kStagingChannels = 64;
constexpr int kStagingPitch = kStagingChannels * 2 + 16;
constexpr int kStagingBytes = 16 * kStagingPitch;

// A tile is kPatches patches x kBlockN input channels. The two consumer warpgroups share its patches, or, where there is
// only one patch, the reduction: each takes half of every chunk.
template <int kPatches_, int kBlockN_, int kStagesA_, int kStagesB_>
struct Tile {
  static constexpr int kPatches = kPatches_, kBlockN = kBlockN_, kStagesA = kStagesA_, kStagesB = kStagesB_;
  static constexpr bool kSplitK = kPatches == 1;
  static constexpr int kGroupPatches = kSplitK ? 1 : kPatches / 2;
  static constexpr int kBoxes = (kBlockN + kBoxChannels - 1) / kBoxChannels;
  static constexpr int kStageBytesA = kPatches * kPatchBytes;
  static constexpr int kStageBytesB = kBoxes * kBoxBytes;
  static constexpr int kReduceBytes = kSplitK ? kPatch * kPatch * kBlockN * 4 : 0;
  static constexpr int kBarriers = 2 * kStagesA + 2 * kStagesB + 2;
  static constexpr std::size_t kSmemBytes = kStagesA * kStageBytesA + kStagesB * kStageBytesB + kReduceBytes +
                                            kConsumerWarps * kStagingBytes + kBarriers * sizeof(ptx::Mbarrier);
  static_assert(kSmemBytes <= 227 * 1024, "what a block of sm_90 can have");
};

// Stores a warp's 16 x kBlockN sums: rows are two image rows of a patch. They pass through a few rows of shared memory
// that are the warp's own, so that it writes 128 bytes of a pixel at a time and waits for nobody. c is a multiple of 8.
template <class T, int kBlockN>
__device__ __forceinline__ void store_sums(const Problem& p, const float (&sum)[kBlockN / 2], PatchPosition at, int c0,
                                           T* dx, unsigned char* staging) {
  constexpr int kVec = 8;
  const int lane = threadIdx.x % 32;
  const int row0 = at.row + threadIdx.x / 32 % 4 * 2;
#pragma unroll
  for (int first = 0; first < kBlockN; first += kStagingChannels) {
    const int channels = kBlockN - first < kStagingChannels ? kBlockN - first : kStagingChannels;
#pragma unroll
    for (int j = 0; j < kStagingChannels / 8 && first + 8 * j < kBlockN; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* const pair = sum + first / 2 + 4 * j + 2 * half;
        T* const to = reinterpret_cast<T*>(staging + (lane / 4 + 8 * half) * kStagingPitch) + 8 * j + lane % 4 * 2;
        alignas(4) const T rounded[2] = {from_float<T>(pair[0]), from_float<T>(pair[1])};
        *reinterpret_cast<std::uint32_t*>(to) = *reinterpret_cast<const std::uint32_t*>(rounded);
      }
    }
    __syncwarp();
    const int runs_per_pixel = channels / kVec;
    for (int i = lane; i < 16 * runs_per_pixel; i += 32) {
      const int pixel = i / runs_per_pixel;
      const int run = i % runs_per_pixel;
      const int row = row0 + pixel / kPatch;
      const int col = at.col + pixel % kPatch;
      const int c = c0 + first + run * kVec;
      if (at.image >= p.n || row >= p.h || col >= p.w || c >= p.c) continue;
      *reinterpret_cast<uint4*>(dx + static_cast<long long>((at.image * p.h + row) * p.w + col) * p.c + c) =
          *reinterpret_cast<const uint4*>(staging + pixel * kStagingPitch + run * 16);
    }
    __syncwarp();
  }
}

template <class T, class Tile>
__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_dgrad_v10_kernel(Problem p, const __grid_constant__ ptx::TensorMap dy_map,
                             const __grid_constant__ ptx::TensorMap w_map, T* dx) {
  constexpr int kBlockN = Tile::kBlockN;
  LADDER_DYN_SMEM(smem);
  unsigned char* const as = smem;                                      // [stage][patch][10 x 10 pixels][64 of k]
  unsigned char* const bs = as + Tile::kStagesA * Tile::kStageBytesA;  // [stage][box][64 of k][64 of c]
  float* const reduce = reinterpret_cast<float*>(bs + Tile::kStagesB * Tile::kStageBytesB);      // [sum][thread]
  unsigned char* const staging = reinterpret_cast<unsigned char*>(reduce) + Tile::kReduceBytes;  // [warp]
  auto* const full_a = reinterpret_cast<ptx::Mbarrier*>(staging + kConsumerWarps * kStagingBytes);
  ptx::Mbarrier* const empty_a = full_a + Tile::kStagesA;
  ptx::Mbarrier* const full_b = empty_a + Tile::kStagesA;
  ptx::Mbarrier* const empty_b = full_b + Tile::kStagesB;
  ptx::Mbarrier* const full_reduce = empty_b + Tile::kStagesB;
  ptx::Mbarrier* const empty_reduce = full_reduce + 1;

  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::kStagesA; ++i) {
      ptx::mbarrier_init(full_a + i, 1);
      ptx::mbarrier_init(empty_a + i, kConsumerWarps);
    }
    for (int i = 0; i < Tile::kStagesB; ++i) {
      ptx::mbarrier_init(full_b + i, 1);
      ptx::mbarrier_init(empty_b + i, kConsumerWarps);
    }
    ptx::mbarrier_init(full_reduce, 128);
    ptx::mbarrier_init(empty_reduce, 128);
    ptx::mbarrier_fence_init();
  }
  __syncthreads();

  const int tiles_c = ceil_div(p.c, kBlockN);
  const int tiles = ceil_div(num_patches(p), Tile::kPatches) * tiles_c;
  const int chunks = ceil_div(p.k, kChunk);
  const int warp = threadIdx.x / 32;

  RingIndex<Tile::kStagesA> a;
  RingIndex<Tile::kStagesB> b;
  if (warp >= kConsumerWarps) {
    // The producer, one thread. A fresh barrier lets a wait for the parity before its first phase pass: parity ^ 1.
    ptx::warpgroup_reg_dealloc<kProducerRegisters>();
    if (threadIdx.x != kConsumerWarps * 32) return;
    ptx::tma_prefetch(dy_map);
    ptx::tma_prefetch(w_map);
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const int c0 = tile % tiles_c * kBlockN;
      const int patch0 = tile / tiles_c * Tile::kPatches;
      for (int chunk = 0; chunk < chunks; ++chunk, a.advance()) {
        ptx::mbarrier_wait(empty_a + a.stage, a.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(full_a + a.stage, Tile::kPatches * kHaloBytes);
        for (int i = 0; i < Tile::kPatches; ++i) {
          const PatchPosition at = patch_position(p, patch0 + i);
          ptx::tma_load(as + a.stage * Tile::kStageBytesA + i * kPatchBytes, dy_map, full_a + a.stage, chunk * kChunk,
                        at.col - 1, at.row - 1, at.image);
        }
        for (int tap = 0; tap < 9; ++tap, b.advance()) {
          ptx::mbarrier_wait(empty_b + b.stage, b.parity ^ 1);
          ptx::mbarrier_arrive_expect_tx(full_b + b.stage, Tile::kStageBytesB);
          for (int box = 0; box < Tile::kBoxes; ++box) {
            ptx::tma_load(bs + b.stage * Tile::kStageBytesB + box * kBoxBytes, w_map, full_b + b.stage,
                          c0 + box * kBoxChannels, 8 - tap, chunk * kChunk);
          }
        }
      }
    }
    return;
  }

  ptx::warpgroup_reg_alloc<kConsumerRegisters>();
  const int group = warp / 4;
  const bool elected = threadIdx.x % 32 == 0;
  unsigned reduce_parity = 0;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int c0 = tile % tiles_c * kBlockN;
    const int patch0 = tile / tiles_c * Tile::kPatches + (Tile::kSplitK ? 0 : group * Tile::kGroupPatches);

    float sum[Tile::kGroupPatches][kBlockN / 2];
    // The stages that the multiplications still in flight read: released one tap late.
    int busy_a = -1;
    int busy_b = -1;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      ptx::mbarrier_wait(full_a + a.stage, a.parity);
      const unsigned char* const halo =
          as + a.stage * Tile::kStageBytesA + (Tile::kSplitK ? 0 : group) * Tile::kGroupPatches * kPatchBytes;
#pragma unroll
      for (int tap = 0; tap < 9; ++tap) {
        ptx::mbarrier_wait(full_b + b.stage, b.parity);
        const unsigned char* const weights = bs + b.stage * Tile::kStageBytesB;
        const int tap_row = tap / 3 * kHalo + tap % 3;
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < kMmaSteps / (Tile::kSplitK ? 2 : 1); ++step) {
          const int kk = Tile::kSplitK ? group * (kMmaSteps / 2) + step : step;
          const auto b_operand = ptx::wgmma_descriptor_mn(weights + kk * kMmaK * kRowBytes, 8 * kRowBytes, kBoxBytes);
#pragma unroll
          for (int i = 0; i < Tile::kGroupPatches; ++i) {
            // NOTE: rows of a patch lie a halo row apart, so groups of eight pixels are 10 x 128 bytes apart.
            const auto a_operand =
                ptx::wgmma_descriptor(halo + i * kPatchBytes + tap_row * kRowBytes + kk * 32, kHalo * kRowBytes);
            ptx::wgmma_m64_b_mn<T, kBlockN>(sum[i], a_operand, b_operand, chunk > 0 || tap > 0 || step > 0);
          }
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        if (elected && busy_b >= 0) ptx::mbarrier_arrive(empty_b + busy_b);
        if (elected && busy_a >= 0) ptx::mbarrier_arrive(empty_a + busy_a);
        busy_a = -1;
        busy_b = b.stage;
        b.advance();
      }
      busy_a = a.stage;
      a.advance();
    }
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < Tile::kGroupPatches; ++i) ptx::warpgroup_fence_operand(sum[i]);
    if (elected) {
      ptx::mbarrier_arrive(empty_b + busy_b);
      ptx::mbarrier_arrive(empty_a + busy_a);
    }

    if constexpr (Tile::kSplitK) {
      // The second warpgroup hands its half of the reduction to the first.
      const int thread = threadIdx.x % 128;
      if (group == 1) {
        ptx::mbarrier_wait(empty_reduce, reduce_parity ^ 1);
#pragma unroll
        for (int j = 0; j < kBlockN / 2; ++j) reduce[j * 128 + thread] = sum[0][j];
        ptx::mbarrier_arrive(full_reduce);
      } else {
        ptx::mbarrier_wait(full_reduce, reduce_parity);
#pragma unroll
        for (int j = 0; j < kBlockN / 2; ++j) sum[0][j] += reduce[j * 128 + thread];
        ptx::mbarrier_arrive(empty_reduce);
      }
      reduce_parity ^= 1;
      if (group == 1) continue;
    }
#pragma unroll
    for (int i = 0; i < Tile::kGroupPatches; ++i) {
      store_sums<T, kBlockN>(p, sum[i], patch_position(p, patch0 + i), c0, dx, staging + warp * kStagingBytes);
    }
  }
}

template <class Tile>
int num_tiles(const Problem& p) {
  return ceil_div(num_patches(p), Tile::kPatches) * ceil_div(p.c, Tile::kBlockN);
}

// Multiplications of the busiest SM, in units of one patch x one input channel, and half a patch more for each tile's
// start and end.
template <class Tile>
int cost(const Problem& p) {
  return ceil_div(num_tiles<Tile>(p), backend::device().num_sms) * (2 * Tile::kPatches + 1) * Tile::kBlockN;
}

template <class T, class Tile>
KernelPlan<Dgrad> tile_plan(const Problem& p, const char* name) {
  const auto bind = [p](const Dgrad::Tensors& t, void*) {
    const auto size = [](int value) { return static_cast<std::uint64_t>(value); };
    const auto dy_map =
        ptx::make_tensor_map(p.dtype, t.dy, {size(p.k), size(p.w), size(p.h), size(p.n)}, {kChunk, kHalo, kHalo, 1});
    const auto w_map = ptx::make_tensor_map(p.dtype, t.w, {size(p.c), 9, size(p.k)}, {kBoxChannels, 1, kChunk});
    const int blocks = std::min(num_tiles<Tile>(p), backend::device().num_sms);
    return bind_launch(conv3x3_dgrad_v10_kernel<T, Tile>,
                       {.grid = static_cast<unsigned>(blocks), .block = kThreads, .dynamic_smem = Tile::kSmemBytes}, p,
                       dy_map, w_map, static_cast<T*>(t.dx));
  };
  return {.name = name, .bind = bind};
}

using Wide = Tile<4, 128, 2, 5>;
using Tall = Tile<4, 64, 2, 8>;
using Middle = Tile<2, 96, 2, 8>;
using Small = Tile<1, 64, 3, 10>;

std::vector<KernelPlan<Dgrad>> plans(const Problem& p) {
  const int costs[] = {cost<Wide>(p), cost<Tall>(p), cost<Middle>(p), cost<Small>(p)};
  const auto cheapest = static_cast<std::size_t>(std::ranges::min_element(costs) - costs);
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Dgrad>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      return with_default<Dgrad>(
          {tile_plan<T, Wide>(p, "4 patches x 128 channels"), tile_plan<T, Tall>(p, "4 patches x 64 channels"),
           tile_plan<T, Middle>(p, "2 patches x 96 channels"), tile_plan<T, Small>(p, "1 patch x 64 channels")},
          cheapest);
    } else {
      return {};
    }
  });
}

const char* supports(const Problem& p) {
  return p.c % 8 == 0 && p.k % 8 == 0 ? nullptr
                                      : "c or k is not a multiple of 16 bytes, which the TMA's strides must be";
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Dgrad, {.plans = ladder::conv3x3::plans,
                                        .plan_names = {"4 patches x 128 channels", "4 patches x 64 channels",
                                                       "2 patches x 96 channels", "1 patch x 64 channels"},
                                        .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::supports,
                                        .min_arch = 90,
                                        .arch_specific = true,
                                        .needs = "c and k multiples of 16 bytes"})

// Idea:   Hopper's own path. The TMA fetches each 8x8 patch of pixels once, with its halo, and wgmma reads all nine taps
//         out of that one copy, each tap a start address shifted by rows; a producer warp runs ahead of two consumer
//         warpgroups through rings of stages, over all tiles of a persistent block.
// Parent: v08.
// Why:    v08 fetches every pixel nine times and moves all operands through registers twice; mma.sync gives it at most
//         two thirds of the tensor rate. Here a pixel is fetched 1.6 times, operands stay in shared memory, and no thread
//         computes an address. Limiter left: both warpgroups store at the same time, so the tensor cores idle through
//         each tile's epilogue, and every tile reads its weights again.
// Needs:  sm_90a; c a multiple of 16 bytes (the TMA's strides). Any h and w: patches may hang over the edge.

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

constexpr int kRowBytes = 128;  // of channels, in a chunk: 64 of 16 bits or 32 of tf32
constexpr int kMmaSteps = kRowBytes / 32;
static_assert(kPatchPixels == 64, "the rows of a wgmma");
constexpr int kHaloBytes = kHaloPixels * kRowBytes;
constexpr int kPatchBytes = (kHaloBytes + 1023) / 1024 * 1024;  // a whole number of swizzle patterns

constexpr int kConsumerWarps = 8;
constexpr int kThreads = (kConsumerWarps + 4) * 32;  // registers move between whole warpgroups, so the producer is one
constexpr int kConsumerRegisters = 232;
constexpr int kProducerRegisters = 40;
static_assert(256 * kConsumerRegisters + 128 * kProducerRegisters <= 65536, "the register file");

// A warp's 16 rows of 128 bytes on their way to y; 16 bytes of padding spread eight rows over all banks.
constexpr int kStagingPitch = 128 + 16;
constexpr int kStagingBytes = 16 * kStagingPitch;
template <class T>
constexpr int kStagingCols = 128 / sizeof(T);

// A tile is kPatches patches x kBlockN output channels. The two consumer warpgroups share its patches, or, where there is
// only one patch, the reduction: each takes half of every chunk.
template <int kPatches_, int kBlockN_, int kStagesA_, int kStagesB_>
struct Tile {
  static constexpr int kPatches = kPatches_, kBlockN = kBlockN_, kStagesA = kStagesA_, kStagesB = kStagesB_;
  static constexpr bool kSplitK = kPatches == 1;
  static constexpr int kGroupPatches = kSplitK ? 1 : kPatches / 2;
  static constexpr int kStageBytesA = kPatches * kPatchBytes;
  static constexpr int kStageBytesB = kBlockN * kRowBytes;
  static constexpr int kReduceBytes = kSplitK ? kPatch * kPatch * kBlockN * 4 : 0;
  static constexpr int kBarriers = 2 * kStagesA + 2 * kStagesB + 2;
  static constexpr std::size_t kSmemBytes = kStagesA * kStageBytesA + kStagesB * kStageBytesB + kReduceBytes +
                                            kConsumerWarps * kStagingBytes + kBarriers * sizeof(ptx::Mbarrier);
  static_assert(kSmemBytes <= 227 * 1024, "what a block of sm_90 can have");
};

// Stores a warp's 16 x kBlockN sums: rows are two image rows of a patch. They pass through a few rows of shared memory
// that are the warp's own, so that it writes 128 bytes of a pixel at a time and waits for nobody.
template <class T, int kBlockN>
__device__ __forceinline__ void store_sums(const Problem& p, const float (&sum)[kBlockN / 2], PatchPosition at, int k0,
                                           const float* bias, T* y, unsigned char* staging) {
  constexpr int kVec = 16 / sizeof(T);
  const int lane = threadIdx.x % 32;
  const int row0 = at.row + threadIdx.x / 32 % 4 * 2;
#pragma unroll
  for (int first = 0; first < kBlockN; first += kStagingCols<T>) {
    constexpr int kMax = kStagingCols<T>;
    const int cols = kBlockN - first < kMax ? kBlockN - first : kMax;
#pragma unroll
    for (int j = 0; j < kMax / 8 && first + 8 * j < kBlockN; ++j) {
      const int k = k0 + first + 8 * j + lane % 4 * 2;
      const float b0 = bias && k < p.k ? bias[k] : 0.0f;
      const float b1 = bias && k + 1 < p.k ? bias[k + 1] : 0.0f;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* pair = sum + first / 2 + 4 * j + 2 * half;
        T* to = reinterpret_cast<T*>(staging + (lane / 4 + 8 * half) * kStagingPitch) + 8 * j + lane % 4 * 2;
        if constexpr (sizeof(T) == 2) {
          alignas(4) const T rounded[2] = {from_float<T>(pair[0] + b0), from_float<T>(pair[1] + b1)};
          *reinterpret_cast<std::uint32_t*>(to) = *reinterpret_cast<const std::uint32_t*>(rounded);
        } else {
          *reinterpret_cast<float2*>(to) = {pair[0] + b0, pair[1] + b1};
        }
      }
    }
    __syncwarp();
    const int runs_per_row = cols / kVec;
    for (int i = lane; i < 16 * runs_per_row; i += 32) {
      const int pixel = i / runs_per_row;
      const int run = i % runs_per_row;
      const int row = row0 + pixel / kPatch;
      const int col = at.col + pixel % kPatch;
      const int k = k0 + first + run * kVec;
      if (at.image >= p.n || row >= p.h || col >= p.w || k >= p.k) continue;
      const unsigned char* from = staging + pixel * kStagingPitch + run * 16;
      T* to = y + static_cast<long long>((at.image * p.h + row) * p.w + col) * p.k + k;
      if (p.k % kVec == 0) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
      } else {
        for (int l = 0; l < kVec && k + l < p.k; ++l) to[l] = reinterpret_cast<const T*>(from)[l];
      }
    }
    __syncwarp();
  }
}

template <class T, class Tile>
__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_fprop_v09_kernel(Problem p, const __grid_constant__ ptx::TensorMap x_map,
                             const __grid_constant__ ptx::TensorMap w_map, const float* bias, T* y) {
  constexpr int kBlockN = Tile::kBlockN;
  constexpr int kChunkC = kRowBytes / sizeof(T);
  LADDER_DYN_SMEM(smem);
  unsigned char* const as = smem;                                      // [stage][patch][10 x 10 pixels][128 bytes]
  unsigned char* const bs = as + Tile::kStagesA * Tile::kStageBytesA;  // [stage][k][128 bytes]
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

  const int tiles_k = ceil_div(p.k, kBlockN);
  const int tiles = ceil_div(num_patches(p), Tile::kPatches) * tiles_k;
  const int chunks = ceil_div(p.c, kChunkC);
  const int warp = threadIdx.x / 32;

  RingIndex<Tile::kStagesA> a;
  RingIndex<Tile::kStagesB> b;
  if (warp >= kConsumerWarps) {
    // The producer, one thread. A fresh barrier lets a wait for the parity before its first phase pass: parity ^ 1.
    ptx::warpgroup_reg_dealloc<kProducerRegisters>();
    if (threadIdx.x != kConsumerWarps * 32) return;
    ptx::tma_prefetch(x_map);
    ptx::tma_prefetch(w_map);
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const int k0 = tile % tiles_k * kBlockN;
      const int patch0 = tile / tiles_k * Tile::kPatches;
      for (int chunk = 0; chunk < chunks; ++chunk, a.advance()) {
        ptx::mbarrier_wait(empty_a + a.stage, a.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(full_a + a.stage, Tile::kPatches * kHaloBytes);
        for (int i = 0; i < Tile::kPatches; ++i) {
          const PatchPosition at = patch_position(p, patch0 + i);
          ptx::tma_load(as + a.stage * Tile::kStageBytesA + i * kPatchBytes, x_map, full_a + a.stage, chunk * kChunkC,
                        at.col - 1, at.row - 1, at.image);
        }
        for (int rs = 0; rs < 9; ++rs, b.advance()) {
          ptx::mbarrier_wait(empty_b + b.stage, b.parity ^ 1);
          ptx::mbarrier_arrive_expect_tx(full_b + b.stage, Tile::kStageBytesB);
          ptx::tma_load(bs + b.stage * Tile::kStageBytesB, w_map, full_b + b.stage, chunk * kChunkC, rs, k0);
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
    const int k0 = tile % tiles_k * kBlockN;
    const int patch0 = tile / tiles_k * Tile::kPatches + (Tile::kSplitK ? 0 : group * Tile::kGroupPatches);

    float sum[Tile::kGroupPatches][kBlockN / 2];
    // The stages that the multiplications still in flight read: released one tap late.
    int busy_a = -1;
    int busy_b = -1;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      ptx::mbarrier_wait(full_a + a.stage, a.parity);
      const unsigned char* const halo =
          as + a.stage * Tile::kStageBytesA + (Tile::kSplitK ? 0 : group) * Tile::kGroupPatches * kPatchBytes;
#pragma unroll
      for (int rs = 0; rs < 9; ++rs) {
        ptx::mbarrier_wait(full_b + b.stage, b.parity);
        const unsigned char* const weights = bs + b.stage * Tile::kStageBytesB;
        const int tap_row = rs / 3 * kHalo + rs % 3;
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < kMmaSteps / (Tile::kSplitK ? 2 : 1); ++step) {
          const int kk = Tile::kSplitK ? group * (kMmaSteps / 2) + step : step;
          const auto b_operand = ptx::wgmma_descriptor(weights + kk * 32, 8 * kRowBytes);
#pragma unroll
          for (int i = 0; i < Tile::kGroupPatches; ++i) {
            // NOTE: rows of a patch lie a halo row apart, so groups of eight pixels are 10 x 128 bytes apart.
            const auto a_operand =
                ptx::wgmma_descriptor(halo + i * kPatchBytes + tap_row * kRowBytes + kk * 32, kHalo * kRowBytes);
            ptx::wgmma_m64<T, kBlockN>(sum[i], a_operand, b_operand, chunk > 0 || rs > 0 || step > 0);
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
      store_sums<T, kBlockN>(p, sum[i], patch_position(p, patch0 + i), k0, bias, y, staging + warp * kStagingBytes);
    }
  }
}

template <class Tile>
int num_tiles(const Problem& p) {
  return ceil_div(num_patches(p), Tile::kPatches) * ceil_div(p.k, Tile::kBlockN);
}

// Multiplications of the busiest SM, in units of one patch x one output channel, and half a patch more for each tile's
// start and end.
template <class Tile>
int cost(const Problem& p) {
  return ceil_div(num_tiles<Tile>(p), backend::device().num_sms) * (2 * Tile::kPatches + 1) * Tile::kBlockN;
}

template <class T, class Tile>
KernelPlan<Fprop> tile_plan(const Problem& p, const char* name) {
  const auto bind = [p](const Fprop::Tensors& t, void*) {
    constexpr std::uint32_t kChunkC = kRowBytes / sizeof(T);
    const auto size = [](int value) { return static_cast<std::uint64_t>(value); };
    const auto x_map =
        ptx::make_tensor_map(p.dtype, t.x, {size(p.c), size(p.w), size(p.h), size(p.n)}, {kChunkC, kHalo, kHalo, 1});
    const auto w_map = ptx::make_tensor_map(p.dtype, t.w, {size(p.c), 9, size(p.k)}, {kChunkC, 1, Tile::kBlockN});
    const int blocks = std::min(num_tiles<Tile>(p), backend::device().num_sms);
    return bind_launch(conv3x3_fprop_v09_kernel<T, Tile>,
                       {.grid = static_cast<unsigned>(blocks), .block = kThreads, .dynamic_smem = Tile::kSmemBytes}, p,
                       x_map, w_map, t.bias, static_cast<T*>(t.y));
  };
  return {.name = name, .bind = bind};
}

using Wide = Tile<4, 128, 2, 5>;
using Tall = Tile<4, 64, 2, 8>;
using Middle = Tile<2, 96, 2, 8>;
using Small = Tile<1, 64, 3, 10>;

std::vector<KernelPlan<Fprop>> plans(const Problem& p) {
  const int costs[] = {cost<Wide>(p), cost<Tall>(p), cost<Middle>(p), cost<Small>(p)};
  const auto cheapest = static_cast<std::size_t>(std::ranges::min_element(costs) - costs);
  return with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    return with_default<Fprop>(
        {tile_plan<T, Wide>(p, "4 patches x 128 channels"), tile_plan<T, Tall>(p, "4 patches x 64 channels"),
         tile_plan<T, Middle>(p, "2 patches x 96 channels"), tile_plan<T, Small>(p, "1 patch x 64 channels")},
        cheapest);
  });
}

const char* supports(const Problem& p) {
  const std::size_t element = p.dtype == Dtype::tf32 ? 4 : 2;
  return p.c * element % 16 == 0 ? nullptr : "c is not a multiple of 16 bytes, which the TMA's strides must be";
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Fprop, {.plans = ladder::conv3x3::plans,
                                        .plan_names = {"4 patches x 128 channels", "4 patches x 64 channels",
                                                       "2 patches x 96 channels", "1 patch x 64 channels"},
                                        .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::supports,
                                        .min_arch = 90,
                                        .arch_specific = true,
                                        .needs = "c a multiple of 16 bytes"})

// A weight-stationary convolution, forward or of the data gradient, with output channels as the rows of wgmma's tiles and
// pixels as their columns. A block keeps all nine taps of its 64 output channels in shared memory, a ring of stages holds
// patches 8 pixels wide with their halo, and two consumer warpgroups take patches in turns: one stores while the other
// multiplies.
//
// `Weights` is a version's access to w: channels_in(p) are summed over, channels_out(p) are outputs; load() fetches a
// tap of 64 x 64 channels; operand() and multiply() are wgmma's for that layout (taps.h).
//
// Shared memory, as ColumnSmem divides it:
//
//     weights    [kMaxChunks][9 taps][64 x 64], loaded once a block
//     stages     [2][kRows + 2][10 pixels][128 bytes]: a chunk of a patch, its halo; swizzled by 128 bytes
//     stores     [2 groups][kPixels][64 channels]: sums on their way out
//     barriers   full, empty [2]; full_weights [kMaxChunks x 9]; turns [2]; met [2]
//
// Phases over a block's patches t0, t1, ...:
//
//     producer   load t0 | load t1 | load t2 | ...                ahead by up to 2 chunks
//     group 0            | multiply t0 | store t0    | multiply t2 | store t2 ...
//     group 1                          | multiply t1 | store t1    | multiply t3 ...
#pragma once

#include <algorithm>

#include "core/backend.h"
#include "dev/common/ping_pong_order.h"
#include "dev/common/ring.h"
#include "dev/conv3x3/column_store.h"
#include "dev/conv3x3/taps.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv3x3 {

inline constexpr int kConsumerGroups = PingPongOrder::kGroups;
inline constexpr int kConsumerThreads = kConsumerGroups * kGroupThreads;
inline constexpr int kThreads = kConsumerThreads + 32;  // one producer warp

// Tile of a block: patches of kRows rows of eight pixels, and weights of at most kMaxChunks chunks.
template <int kRows_, int kMaxChunks_>
struct ColumnTile {
  static constexpr int kRows = kRows_, kMaxChunks = kMaxChunks_;
  static constexpr int kPixels = kRows * kPatch;
  static constexpr int kStages = 2;
  static constexpr int kHaloBytes = (kRows + 2) * kHalo * kRowBytes;
  static constexpr int kStageBytes = (kHaloBytes + 1023) / 1024 * 1024;  // a whole number of swizzle patterns
  static constexpr int kWeightBytes = kMaxChunks * 9 * kTapBytes;
  static constexpr int kStoreBytes = ColumnStore<__half, kPixels>::kBytes;  // of a group
  static constexpr int kBarriers = 2 * kStages + kMaxChunks * 9 + 2 * kConsumerGroups;
  static constexpr std::size_t kSmemBytes =
      kWeightBytes + kStages * kStageBytes + kConsumerGroups * kStoreBytes + kBarriers * sizeof(ptx::Mbarrier);
  static_assert(kSmemBytes <= 227 * 1024, "what a block of sm_90 can have");
  static_assert(kStages >= kMaxChunks, "a stage is free again once the next is multiplied");
};
using Tall = ColumnTile<32, 1>;
using Short = ColumnTile<16, 2>;
inline constexpr int kMaxChannels = Short::kMaxChunks * kChunk;  // input channels at most

template <class Tile>
struct ColumnSmem {
  unsigned char* weights;  // [chunk][tap], as Weights::load() leaves them
  unsigned char* stages;   // [stage][kRows + 2][10 pixels][64 channels]
  unsigned char* stores;   // [group][kPixels][64 channels]
  ptx::Mbarrier* full;     // [stage]
  ptx::Mbarrier* empty;
  ptx::Mbarrier* full_weights;  // [chunk][tap]
  PingPongOrder turns;
  ptx::Mbarrier* met;  // [group]

  __device__ __forceinline__ explicit ColumnSmem(unsigned char* smem)
      : weights(smem),
        stages(weights + Tile::kWeightBytes),
        stores(stages + Tile::kStages * Tile::kStageBytes),
        full(reinterpret_cast<ptx::Mbarrier*>(stores + kConsumerGroups * Tile::kStoreBytes)),
        empty(full + Tile::kStages),
        full_weights(empty + Tile::kStages),
        turns{full_weights + Tile::kMaxChunks * 9},
        met(turns.passed + kConsumerGroups) {}

  __device__ __forceinline__ void init_barriers() const {
    for (int i = 0; i < Tile::kStages; ++i) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, kGroupThreads / 32);
    }
    for (int i = 0; i < Tile::kMaxChunks * 9; ++i) ptx::mbarrier_init(full_weights + i, 1);
    turns.init();
    for (int i = 0; i < kConsumerGroups; ++i) ptx::mbarrier_init(met + i, kGroupThreads / 32);
    ptx::mbarrier_fence_init();
  }
};

template <class Tile>
__host__ __device__ int patches_of(const Problem& p) {
  return p.n * ceil_div(p.h, Tile::kRows) * ceil_div(p.w, kPatch);
}

// Returns the position of a patch. Patches are numbered columns fastest, then rows, then images.
template <class Tile>
__device__ __forceinline__ PatchPosition position_of(const Problem& p, int patch) {
  const int across = ceil_div(p.w, kPatch);
  const int down = ceil_div(p.h, Tile::kRows);
  return {patch / across / down, patch / across % down * Tile::kRows, patch % across * kPatch};
}

// Work of a block: one tile of channels, and every `step`-th patch.
struct PatchRange {
  int channel0, first, step, count, chunks;
};
template <class Weights, class Tile>
__device__ __forceinline__ PatchRange patch_range_of_block(const Problem& p) {
  const int channel_tiles = ceil_div(Weights::channels_out(p), kTileChannels);
  const int block = blockIdx.x;
  return {.channel0 = block % channel_tiles * kTileChannels,
          .first = block / channel_tiles,
          .step = static_cast<int>(gridDim.x) / channel_tiles,
          .count = patches_of<Tile>(p),
          .chunks = ceil_div(Weights::channels_in(p), kChunk)};
}

// Producer, one thread: loads the weights, ahead of the wait for the grid in front if `early_weights`, else with the first
// patch, and the block's patches.
template <class Weights, class Tile>
__device__ __forceinline__ void load_columns(const Problem& p, const ColumnSmem<Tile>& smem,
                                             const PatchRange& work_range, const ptx::TensorMap& image_map,
                                             const ptx::TensorMap& w_map, bool early_weights) {
  if (early_weights) {
    for (int chunk = 0; chunk < work_range.chunks; ++chunk)
      load_taps_once<Weights>(smem.weights, w_map, smem.full_weights, chunk, work_range.channel0);
  }
  int i = 0;
  for (int patch = work_range.first; patch < work_range.count; patch += work_range.step) {
    const PatchPosition position = position_of<Tile>(p, patch);
    ptx::grid_dependency_wait_after(position.image | position.row | position.col | work_range.channel0);
    for (int chunk = 0; chunk < work_range.chunks; ++chunk, ++i) {
      const int stage = stage_of<Tile::kStages>(i);
      // A fresh barrier lets a wait for the parity before its first phase pass: parity ^ 1.
      ptx::mbarrier_wait(smem.empty + stage, parity_of<Tile::kStages>(i) ^ 1);
      ptx::mbarrier_arrive_expect_tx(smem.full + stage, Tile::kHaloBytes);
      load_patch(smem.stages + stage * Tile::kStageBytes, image_map, smem.full + stage, position, chunk * kChunk);
      if (patch == work_range.first && !early_weights)
        load_taps_once<Weights>(smem.weights, w_map, smem.full_weights, chunk, work_range.channel0);
    }
  }
  ptx::grid_dependency_launch();
}

// Waits for turn `turn`, then computes the warpgroup's sums of its patch: all taps of all chunks. Passes the turn on
// when the last products have been issued.
template <class T, class Weights, class Tile>
__device__ __forceinline__ void multiply_columns(const ColumnSmem<Tile>& smem, int chunks, int turn, bool elected,
                                                 float (&sum)[Tile::kPixels / 2]) {
  smem.turns.wait(turn);
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int i = turn * chunks + chunk;
    const int stage = stage_of<Tile::kStages>(i);
    const unsigned char* const halo = smem.stages + stage * Tile::kStageBytes;
    ptx::mbarrier_wait(smem.full + stage, parity_of<Tile::kStages>(i));
#pragma unroll
    for (int tap = 0; tap < 9; ++tap) {
      ptx::mbarrier_wait(smem.full_weights + chunk * 9 + tap, 0);
      ptx::wgmma_fence();
      const unsigned char* const weights = smem.weights + (chunk * 9 + tap) * kTapBytes;
#pragma unroll
      for (int step = 0; step < kChunk / kMmaK; ++step) {
        Weights::template multiply<T, Tile::kPixels>(sum, Weights::operand(weights, step),
                                                     pixel_operand(halo, tap, step), chunk > 0 || tap > 0 || step > 0);
      }
      ptx::wgmma_commit();
      if (elected && chunk == chunks - 1 && tap == 8) smem.turns.pass_on(turn);
      ptx::wgmma_wait<1>();
      // Release the stage of the previous chunk, whose products are done.
      if (elected && chunk > 0 && tap == 0) ptx::mbarrier_arrive(smem.empty + stage_of<Tile::kStages>(i - 1));
    }
  }
  ptx::wgmma_wait<0>();
  ptx::warpgroup_fence_operand(sum);
  if (elected) ptx::mbarrier_arrive(smem.empty + stage_of<Tile::kStages>(turn * chunks + chunks - 1));
}

template <class T, class Tile>
__device__ __forceinline__ ColumnStore<T, Tile::kPixels> store_of_group(const ColumnSmem<Tile>& smem,
                                                                        const PatchRange& work_range, int group,
                                                                        int channels) {
  return {.rows = smem.stores + group * Tile::kStoreBytes,
          .met = smem.met + group,
          .channel0 = work_range.channel0,
          .channels = channels};
}

// Tensor map of `image` [n, h, w, channels]: a box is a chunk of channels of a patch and its halo.
template <class Tile>
ptx::TensorMap columns_map(const Problem& p, const void* image, int channels) {
  const auto size = [](int value) { return static_cast<std::uint64_t>(value); };
  return ptx::make_tensor_map(p.dtype, image, {size(channels), size(p.w), size(p.h), size(p.n)},
                              {kChunk, kHalo, Tile::kRows + 2, 1});
}

// Returns the fewest blocks that have no more patches each than with a block on every SM.
template <class Tile>
int blocks_of_a_channel_tile(const Problem& p, int channels_out) {
  const int most = std::max(1, backend::device().num_sms / ceil_div(channels_out, kTileChannels));
  return ceil_div(patches_of<Tile>(p), ceil_div(patches_of<Tile>(p), most));
}

template <class Tile>
LaunchConfig columns_config(const Problem& p, int channels_out) {
  const int blocks = ceil_div(channels_out, kTileChannels) * blocks_of_a_channel_tile<Tile>(p, channels_out);
  return {.grid = static_cast<unsigned>(blocks),
          .block = kThreads,
          .dynamic_smem = Tile::kSmemBytes,
          .overlaps_previous = true};
}

// Returns plan_of(Tile{}, name) of each tile that holds the weights. The tall tile is the default if its busiest block
// has no more pixels than the short tile's.
template <class Pass, class Weights, class F>
std::vector<KernelPlan<Pass>> column_plans(const Problem& p, F&& plan_of) {
  std::vector<KernelPlan<Pass>> plans = {plan_of(Short{}, "128 pixels")};
  if (Weights::channels_in(p) > kChunk) return plans;
  plans.push_back(plan_of(Tall{}, "256 pixels"));
  const int channels = Weights::channels_out(p);
  const auto rows = [&]<class Tile>(Tile) {
    return ceil_div(patches_of<Tile>(p), blocks_of_a_channel_tile<Tile>(p, channels)) * Tile::kRows;
  };
  return with_default<Pass>(std::move(plans), rows(Tall{}) <= rows(Short{}) ? 1 : 0);
}

}  // namespace ladder::conv3x3

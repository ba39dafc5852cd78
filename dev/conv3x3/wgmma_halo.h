// A convolution of halo patches by wgmma, forward or of the data gradient. A producer warp runs ahead of two consumer
// warpgroups through two rings of stages, of patches (A) and of one tap's weights (B), over all tiles of a persistent block.
//
// `Weights` is how a version reads w: channels_in(p) are summed over, channels_out(p) made; load() fetches a stage of a tap;
// operand() and multiply() are wgmma's with that layout. kAnyChannels: rows of the output need not be a multiple of
// 16 bytes.
//
// Shared memory, as HaloSmem divides it:
//
//     as         [kStagesA][kPatches][10 x 10 pixels][128 bytes of channels]; swizzled by 128 bytes
//     bs         [kStagesB]: one tap's weights of a chunk of channels
//     reduce     [kBlockN / 2 sums][128 threads] fp32, of tiles of one patch: the second warpgroup's half
//     staging    [8 warps][16 rows][144 bytes]: sums on their way out
//     barriers   full_a, empty_a [kStagesA]; full_b, empty_b [kStagesB]; full_reduce, empty_reduce
//
// Phases of a chunk of channels:
//
//     producer      A(chunk) | B(tap 0) | B(tap 1) | ... | B(tap 8) | A(chunk + 1) | ...    ahead by both rings' stages
//     warpgroups    wait A   | tap 0    | tap 1    | ... | tap 8    | wait A       | ...    each its own patches
//     after the last chunk: add_halves() of a tile of one patch; then each warp stores its 16 rows
#pragma once

#include <algorithm>

#include "core/backend.h"
#include "dev/common/parameter_type.h"
#include "dev/common/ring.h"
#include "dev/conv3x3/halo_patch.h"

namespace ladder::conv3x3 {

// Channels that are summed over at a time.
template <class T>
inline constexpr int kChunk = kRowBytes / static_cast<int>(sizeof(T));
inline constexpr int kMmaSteps = kRowBytes / 32;  // of a chunk

inline constexpr int kConsumerWarps = 8;
// Registers move between whole warpgroups, so the producer is one.
inline constexpr int kThreads = (kConsumerWarps + 4) * 32;
inline constexpr int kConsumerRegisters = 232;
inline constexpr int kProducerRegisters = 40;
static_assert(256 * kConsumerRegisters + 128 * kProducerRegisters <= 65536, "the register file");

// A warp's 16 rows of 128 bytes on their way to the output; 16 bytes of padding spread eight rows over all banks.
inline constexpr int kStagingPitch = 128 + 16;
inline constexpr int kStagingBytes = 16 * kStagingPitch;
template <class T>
inline constexpr int kStagingCols = 128 / sizeof(T);

// A tile is kPatches patches x kBlockN output channels. The two consumer warpgroups share its patches, or, where there is
// only one patch, the reduction: each takes half of every chunk.
template <class Weights_, int kPatches_, int kBlockN_, int kStagesA_, int kStagesB_>
struct HaloTile {
  using Weights = Weights_;
  static constexpr int kPatches = kPatches_, kBlockN = kBlockN_, kStagesA = kStagesA_, kStagesB = kStagesB_;
  static constexpr bool kSplitK = kPatches == 1;
  static constexpr int kGroupPatches = kSplitK ? 1 : kPatches / 2;
  static constexpr int kStageBytesA = kPatches * kPatchBytes;
  static constexpr int kStageBytesB = Weights::stage_bytes(kBlockN);
  static constexpr int kReduceBytes = kSplitK ? kPatch * kPatch * kBlockN * 4 : 0;
  static constexpr int kBarriers = 2 * kStagesA + 2 * kStagesB + 2;
  static constexpr std::size_t kSmemBytes = kStagesA * kStageBytesA + kStagesB * kStageBytesB + kReduceBytes +
                                            kConsumerWarps * kStagingBytes + kBarriers * sizeof(ptx::Mbarrier);
  static_assert(kSmemBytes <= 227 * 1024, "what a block of sm_90 can have");
};

template <class Tile>
struct HaloSmem {
  unsigned char* as;       // [stage][patch][10 x 10 pixels][128 bytes]
  unsigned char* bs;       // [stage], as Weights::load() leaves them
  float* reduce;           // [sum][thread]
  unsigned char* staging;  // [warp]
  ptx::Mbarrier *full_a, *empty_a, *full_b, *empty_b, *full_reduce, *empty_reduce;

  __device__ __forceinline__ explicit HaloSmem(unsigned char* smem)
      : as(smem),
        bs(as + Tile::kStagesA * Tile::kStageBytesA),
        reduce(reinterpret_cast<float*>(bs + Tile::kStagesB * Tile::kStageBytesB)),
        staging(reinterpret_cast<unsigned char*>(reduce) + Tile::kReduceBytes),
        full_a(reinterpret_cast<ptx::Mbarrier*>(staging + kConsumerWarps * kStagingBytes)),
        empty_a(full_a + Tile::kStagesA),
        full_b(empty_a + Tile::kStagesA),
        empty_b(full_b + Tile::kStagesB),
        full_reduce(empty_b + Tile::kStagesB),
        empty_reduce(full_reduce + 1) {}

  __device__ __forceinline__ void init_barriers() const {
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
};

// Tiles of a launch, channels fastest, and the chunks of each.
struct HaloTiles {
  int channel_tiles, count, chunks;
};

template <class T, class Tile>
__device__ __forceinline__ HaloTiles halo_tiles(const Problem& p) {
  const int channel_tiles = ceil_div(Tile::Weights::channels_out(p), Tile::kBlockN);
  return {.channel_tiles = channel_tiles,
          .count = ceil_div(num_patches(p), Tile::kPatches) * channel_tiles,
          .chunks = ceil_div(Tile::Weights::channels_in(p), kChunk<T>)};
}

// Fetches taps first_tap to 8 of a chunk. By one thread.
template <class T, class Tile>
__device__ __forceinline__ void load_taps(const HaloSmem<Tile>& smem, RingIndex<Tile::kStagesB>& b,
                                          const ptx::TensorMap& w_map, int chunk, int channel0, int first_tap = 0) {
  for (int tap = first_tap; tap < 9; ++tap, b.advance()) {
    ptx::mbarrier_wait(smem.empty_b + b.stage, b.parity ^ 1);
    ptx::mbarrier_arrive_expect_tx(smem.full_b + b.stage, Tile::kStageBytesB);
    Tile::Weights::template load<kChunk<T>, Tile::kBlockN>(smem.bs + b.stage * Tile::kStageBytesB, w_map,
                                                           smem.full_b + b.stage, chunk, tap, channel0);
  }
}

// Fills the ring with the first taps of the block's first tile, ahead of grid_dependency_wait(). Returns their number.
template <class T, class Tile>
__device__ __forceinline__ int load_taps_early(const HaloSmem<Tile>& smem, RingIndex<Tile::kStagesB>& b,
                                               const ptx::TensorMap& w_map, int chunks, int channel0) {
  const int count = min(Tile::kStagesB, 9 * chunks);
  for (int i = 0; i < count; ++i, b.advance()) {
    ptx::mbarrier_arrive_expect_tx(smem.full_b + b.stage, Tile::kStageBytesB);
    Tile::Weights::template load<kChunk<T>, Tile::kBlockN>(smem.bs + b.stage * Tile::kStageBytesB, w_map,
                                                           smem.full_b + b.stage, i / 9, i % 9, channel0);
  }
  return count;
}

// A warpgroup's sums of a tile: all taps of all chunks, or of its half of each chunk.
template <class T, class Tile>
__device__ __forceinline__ void multiply_tile(const HaloSmem<Tile>& smem, int chunks, int group, bool elected,
                                              RingIndex<Tile::kStagesA>& a, RingIndex<Tile::kStagesB>& b,
                                              float (&sum)[Tile::kGroupPatches][Tile::kBlockN / 2]) {
  // The stages that the multiplications still in flight read: released one tap late.
  int busy_a = -1;
  int busy_b = -1;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    ptx::mbarrier_wait(smem.full_a + a.stage, a.parity);
    const unsigned char* const halo =
        smem.as + a.stage * Tile::kStageBytesA + (Tile::kSplitK ? 0 : group) * Tile::kGroupPatches * kPatchBytes;
#pragma unroll
    for (int tap = 0; tap < 9; ++tap) {
      ptx::mbarrier_wait(smem.full_b + b.stage, b.parity);
      const unsigned char* const weights = smem.bs + b.stage * Tile::kStageBytesB;
      ptx::wgmma_fence();
#pragma unroll
      for (int step = 0; step < kMmaSteps / (Tile::kSplitK ? 2 : 1); ++step) {
        const int kk = Tile::kSplitK ? group * (kMmaSteps / 2) + step : step;
        const auto b_operand = Tile::Weights::operand(weights, kk);
#pragma unroll
        for (int i = 0; i < Tile::kGroupPatches; ++i) {
          const auto a_operand = pixel_operand(halo + i * kPatchBytes, tap, kk);
          Tile::Weights::template multiply<T, Tile::kBlockN>(sum[i], a_operand, b_operand,
                                                             chunk > 0 || tap > 0 || step > 0);
        }
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      if (elected && busy_b >= 0) ptx::mbarrier_arrive(smem.empty_b + busy_b);
      if (elected && busy_a >= 0) ptx::mbarrier_arrive(smem.empty_a + busy_a);
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
    ptx::mbarrier_arrive(smem.empty_b + busy_b);
    ptx::mbarrier_arrive(smem.empty_a + busy_a);
  }
}

// The second warpgroup hands its half of the reduction to the first. `parity` is of the tile.
template <class Tile>
__device__ __forceinline__ void add_halves(const HaloSmem<Tile>& smem, int group, unsigned parity,
                                           float (&sum)[Tile::kBlockN / 2]) {
  const int thread = threadIdx.x % 128;
  if (group == 1) {
    ptx::mbarrier_wait(smem.empty_reduce, parity ^ 1);
#pragma unroll
    for (int j = 0; j < Tile::kBlockN / 2; ++j) smem.reduce[j * 128 + thread] = sum[j];
    ptx::mbarrier_arrive(smem.full_reduce);
  } else {
    ptx::mbarrier_wait(smem.full_reduce, parity);
#pragma unroll
    for (int j = 0; j < Tile::kBlockN / 2; ++j) sum[j] += smem.reduce[j * 128 + thread];
    ptx::mbarrier_arrive(smem.empty_reduce);
  }
}

// The bias [channels_out] of a lane's channels of a tile, 8j + 2 (lane % 4) and the next; zeros beyond, and where `bias` is
// null. Fetched ahead of the products: tested and loaded at each sum, it was a quarter of the kernel.
template <class Tile, class P>
__device__ __forceinline__ void fetch_bias(const Problem& p, const P* bias, int channel0,
                                           float2 (&pairs)[Tile::kBlockN / 8]) {
#pragma unroll
  for (int j = 0; j < Tile::kBlockN / 8; ++j) pairs[j] = {0.0f, 0.0f};
  if (!bias) return;
#pragma unroll
  for (int j = 0; j < Tile::kBlockN / 8; ++j) {
    const int channel = channel0 + 8 * j + static_cast<int>(threadIdx.x) % 4 * 2;
    if (channel < Tile::Weights::channels_out(p)) pairs[j].x = to_float(bias[channel]);
    if (channel + 1 < Tile::Weights::channels_out(p)) pairs[j].y = to_float(bias[channel + 1]);
  }
}

// Stores a warp's 16 x kBlockN sums: rows are two image rows of a patch. They pass through a few rows of shared memory
// that are the warp's own, so that it writes 128 bytes of a pixel at a time and waits for nobody. `bias` is from
// fetch_bias(), or null.
template <class T, class Tile>
__device__ __forceinline__ void store_sums(const Problem& p, const float (&sum)[Tile::kBlockN / 2],
                                           PatchPosition position, int channel0, const float2* bias, T* out,
                                           unsigned char* staging) {
  constexpr int kBlockN = Tile::kBlockN;
  constexpr int kVec = 16 / sizeof(T);
  const auto channels = [&] { return Tile::Weights::channels_out(p); };
  const bool in_runs = !Tile::Weights::kAnyChannels || channels() % kVec == 0;
  const int lane = threadIdx.x % 32;
  const int row0 = position.row + threadIdx.x / 32 % 4 * 2;
#pragma unroll
  for (int first = 0; first < kBlockN; first += kStagingCols<T>) {
    constexpr int kMax = kStagingCols<T>;
    const int cols = kBlockN - first < kMax ? kBlockN - first : kMax;
#pragma unroll
    for (int j = 0; j < kMax / 8 && first + 8 * j < kBlockN; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* const pair = sum + first / 2 + 4 * j + 2 * half;
        float2 v{pair[0], pair[1]};
        if (bias) v.x += bias[first / 8 + j].x, v.y += bias[first / 8 + j].y;
        T* const to = reinterpret_cast<T*>(staging + (lane / 4 + 8 * half) * kStagingPitch) + 8 * j + lane % 4 * 2;
        if constexpr (sizeof(T) == 2) {
          alignas(4) const T rounded[2] = {from_float<T>(v.x), from_float<T>(v.y)};
          *reinterpret_cast<std::uint32_t*>(to) = *reinterpret_cast<const std::uint32_t*>(rounded);
        } else {
          *reinterpret_cast<float2*>(to) = v;
        }
      }
    }
    __syncwarp();
    const int runs_per_row = cols / kVec;
    for (int i = lane; i < 16 * runs_per_row; i += 32) {
      const int pixel = i / runs_per_row;
      const int run = i % runs_per_row;
      const int row = row0 + pixel / kPatch;
      const int col = position.col + pixel % kPatch;
      const int channel = channel0 + first + run * kVec;
      if (position.image >= p.n || row >= p.h || col >= p.w || channel >= channels()) continue;
      const unsigned char* const from = staging + pixel * kStagingPitch + run * 16;
      T* const to = out + static_cast<long long>((position.image * p.h + row) * p.w + col) * channels() + channel;
      if (in_runs) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
      } else {
#pragma unroll 1
        for (int l = 0; l < kVec && channel + l < channels(); ++l) to[l] = reinterpret_cast<const T*>(from)[l];
      }
    }
    __syncwarp();
  }
}

template <class Tile>
int num_tiles(const Problem& p) {
  return ceil_div(num_patches(p), Tile::kPatches) * ceil_div(Tile::Weights::channels_out(p), Tile::kBlockN);
}

template <class Tile>
LaunchConfig halo_config(const Problem& p) {
  return {.grid = static_cast<unsigned>(std::min(num_tiles<Tile>(p), backend::device().num_sms)),
          .block = kThreads,
          .dynamic_smem = Tile::kSmemBytes,
          .overlaps_previous = true};
}

// Multiplications of the busiest SM, in units of one patch x one output channel, and half a patch more for each tile's
// start and end.
template <class Tile>
int cost(const Problem& p) {
  return ceil_div(num_tiles<Tile>(p), backend::device().num_sms) * (2 * Tile::kPatches + 1) * Tile::kBlockN;
}

// `plan_of(tile, name)` of each tile, the one of the least cost first.
template <class Pass, class Weights, class F>
std::vector<KernelPlan<Pass>> halo_plans(const Problem& p, F&& plan_of) {
  using Wide = HaloTile<Weights, 4, 128, 2, 5>;
  using Tall = HaloTile<Weights, 4, 64, 2, 8>;
  using Middle = HaloTile<Weights, 2, 96, 2, 8>;
  using Small = HaloTile<Weights, 1, 64, 3, 10>;
  const int costs[] = {cost<Wide>(p), cost<Tall>(p), cost<Middle>(p), cost<Small>(p)};
  const auto cheapest = static_cast<std::size_t>(std::ranges::min_element(costs) - costs);
  return with_default<Pass>({plan_of(Wide{}, "4 patches x 128 channels"), plan_of(Tall{}, "4 patches x 64 channels"),
                             plan_of(Middle{}, "2 patches x 96 channels"), plan_of(Small{}, "1 patch x 64 channels")},
                            cheapest);
}

}  // namespace ladder::conv3x3

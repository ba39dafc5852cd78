// Idea:   add the other operands of a residual block in the epilogue: a row of an embedding to each image, and a
//         residual image. Bias and row are added up in registers before the products; cp.async copies the residual into
//         the rows of shared memory that the sums pass through, two rounds ahead of them.
// Parent: v09.
// Why:    after v09, add/embedding and add/residual read and write y once more each, and are launches. Here y is
//         written once, and rounded once instead of twice. Limiter left: as v09, with the same tiles, rings and
//         products: both warpgroups store at the same time.
// Needs:  sm_90a; c and k multiples of 8 (the TMA's strides, whole runs of 16 bytes); the embedding's rows and first column
//         even; an fp32 bias; bf16 or fp16.

#include "core/early_tensors.h"
#include "dev/common/vectors.h"
#include "dev/conv3x3/addends.h"
#include "dev/conv3x3/wgmma_halo.h"
#include "dev/ptx/cp_async.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/setmaxnreg.h"

namespace ladder::conv3x3 {
namespace {

// Operand of w [k][tap][c], with its layout unchanged: a row of shared memory is a chunk of channels c of an output
// channel, so the operand is K-major.
struct AddendWeights {
  static constexpr int stage_bytes(int block_n) { return block_n * kRowBytes; }  // [k][128 bytes of c]

  static __host__ __device__ int channels_in(const Problem& p) { return p.c; }
  static __host__ __device__ int channels_out(const Problem& p) { return p.k; }

  template <int kChunk, int kBlockN>
  static __device__ __forceinline__ void load(unsigned char* stage, const ptx::TensorMap& map, ptx::Mbarrier* full,
                                              int chunk, int tap, int k0) {
    ptx::tma_load(stage, map, full, chunk * kChunk, tap, k0);
  }
  static __device__ __forceinline__ std::uint64_t operand(const unsigned char* weights, int step) {
    return ptx::wgmma_descriptor(weights + step * 32, 8 * kRowBytes);
  }
  template <class T, int kBlockN>
  static __device__ __forceinline__ void multiply(float (&sum)[kBlockN / 2], std::uint64_t a, std::uint64_t b,
                                                  bool accumulate) {
    ptx::wgmma_m64<T, kBlockN>(sum, a, b, accumulate);
  }
};

// Rounds in which a warp stores a tile: 16 pixels, two rows of a patch, x 64 channels, or the last 32 of 96. A warp has
// two sets of rows in shared memory, which rounds use alternately.
template <class Tile>
struct Rounds {
  static constexpr int kChannels = kStagingCols<__half>;
  static constexpr int kOfPatch = ceil_div(Tile::kBlockN, kChannels);
  static constexpr int kCount = Tile::kGroupPatches * kOfPatch;
  static constexpr int kBuffers = 2;
  // Byte offset of the warps' second sets, after HaloSmem, which has the first.
  static constexpr std::size_t kSecondRowsOffset = (Tile::kSmemBytes + 15) / 16 * 16;
  static constexpr std::size_t kSmemBytes = kSecondRowsOffset + kConsumerWarps * kStagingBytes;
  static_assert(kSmemBytes <= 227 * 1024, "what a block of sm_90 can have");

  static __host__ __device__ constexpr int patch(int round) { return round / kOfPatch; }
  static __host__ __device__ constexpr int first(int round) { return round % kOfPatch * kChannels; }
  static __host__ __device__ constexpr int channels(int round) {
    return Tile::kBlockN - first(round) < kChannels ? Tile::kBlockN - first(round) : kChannels;
  }
};

// Calls f(address in shared memory, element of an image [n, h, w, k], true if it is in the image) for each of the
// lane's runs of eight channels of a round.
template <int kChannels, class F>
__device__ __forceinline__ void for_runs(const Problem& p, unsigned char* rows, const PatchPosition& position,
                                         int channel0, const F& f) {
  constexpr int kRuns = kChannels / 8;  // of a pixel
#pragma unroll
  for (int i = 0; i < 16 * kRuns / 32; ++i) {
    const int run = i * 32 + static_cast<int>(threadIdx.x) % 32;
    const int pixel = run / kRuns;
    const int row = position.row + static_cast<int>(threadIdx.x) / 32 % 4 * 2 + pixel / kPatch;
    const int col = position.col + pixel % kPatch;
    const int channel = channel0 + run % kRuns * 8;
    const bool inside = position.image < p.n && row < p.h && col < p.w && channel < p.k;
    f(rows + pixel * kStagingPitch + run % kRuns * 16,
      static_cast<long long>((position.image * p.h + row) * p.w + col) * p.k + channel, inside);
  }
}

// Stores a lane's sums of a round plus `added`, and with kResidual plus the residual in `rows`, in `rows`, rounded.
template <class T, int kChannels, bool kResidual>
__device__ __forceinline__ void finish_sums(unsigned char* rows, const float* sum, const float2* added) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kChannels / 8; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float pair[2] = {sum[4 * j + 2 * half] + added[j].x, sum[4 * j + 2 * half + 1] + added[j].y};
      auto* const word =
          reinterpret_cast<unsigned*>(rows + (lane / 4 + 8 * half) * kStagingPitch + (8 * j + lane % 4 * 2) * 2);
      unsigned words[1] = {0};
      if constexpr (kResidual) {
        words[0] = *word;
        float more[2];
        unpack<T, 1>(words, more);
        pair[0] += more[0], pair[1] += more[1];
      }
      pack<T, 1>(pair, words);
      *word = words[0];
    }
  }
}

template <class T, class Tile>
__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_fprop_v14_kernel(Problem p, const __grid_constant__ ptx::TensorMap x_map,
                             const __grid_constant__ ptx::TensorMap w_map, Addends<T> addends, T* y,
                             bool early_weights) {
  using R = Rounds<Tile>;
  LADDER_DYN_SMEM(dynamic_smem);
  const HaloSmem<Tile> smem(dynamic_smem);
  if (threadIdx.x == 0) smem.init_barriers();
  if (threadIdx.x == kConsumerWarps * 32) {
    ptx::tma_prefetch(x_map);
    ptx::tma_prefetch(w_map);
  }
  __syncthreads();
  const HaloTiles tiles = halo_tiles<T, Tile>(p);
  const int warp = threadIdx.x / 32;
  RingIndex<Tile::kStagesA> a;
  RingIndex<Tile::kStagesB> b;

  // The producer.
  if (warp >= kConsumerWarps) {
    ptx::warpgroup_reg_dealloc<kProducerRegisters>();
    if (threadIdx.x != kConsumerWarps * 32) return;
    int early_taps = 0;
    if (early_weights) {
      const int channel0 = blockIdx.x % tiles.channel_tiles * Tile::kBlockN;
      early_taps = load_taps_early<T>(smem, b, w_map, tiles.chunks, channel0);
    }
    for (int tile = blockIdx.x; tile < tiles.count; tile += gridDim.x) {
      const int channel0 = tile % tiles.channel_tiles * Tile::kBlockN;
      const int patch0 = tile / tiles.channel_tiles * Tile::kPatches;
      const PatchPosition first = patch_position(p, patch0);
      ptx::grid_dependency_wait_after(first.image | first.row | first.col | channel0);
      for (int chunk = 0; chunk < tiles.chunks; ++chunk, a.advance()) {
        // A fresh barrier lets a wait for the parity before its first phase pass: parity ^ 1.
        ptx::mbarrier_wait(smem.empty_a + a.stage, a.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(smem.full_a + a.stage, Tile::kPatches * kHaloBytes);
        for (int i = 0; i < Tile::kPatches; ++i) {
          load_patch(smem.as + a.stage * Tile::kStageBytesA + i * kPatchBytes, x_map, smem.full_a + a.stage,
                     patch_position(p, patch0 + i), chunk * kChunk<T>);
        }
        load_taps<T>(smem, b, w_map, chunk, channel0, min(early_taps, 9));
        early_taps -= min(early_taps, 9);
      }
    }
    ptx::grid_dependency_launch();
    return;
  }

  // Consumers: a warpgroup takes half of the tile's patches or, if the tile has one patch, half of each chunk.
  ptx::warpgroup_reg_alloc<kConsumerRegisters>();
  const int group = warp / 4;
  const bool elected = threadIdx.x % 32 == 0;
  unsigned char* const rows[R::kBuffers] = {smem.staging + warp * kStagingBytes,
                                            dynamic_smem + R::kSecondRowsOffset + warp * kStagingBytes};
  unsigned reduce_parity = 0;
  ptx::grid_dependency_wait();
  for (int tile = blockIdx.x; tile < tiles.count; tile += gridDim.x) {
    const int channel0 = tile % tiles.channel_tiles * Tile::kBlockN;
    const int patch0 = tile / tiles.channel_tiles * Tile::kPatches + (Tile::kSplitK ? 0 : group * Tile::kGroupPatches);
    const bool stores = !Tile::kSplitK || group == 0;

    // Fetch the addends: start the copies of the residual for the first two rounds, load bias and embedding into
    // registers.
    const auto fetch = [&]<int kRound>() {
      if constexpr (kRound < R::kCount) {
        if (addends.residual) {
          for_runs<R::channels(kRound)>(p, rows[kRound % R::kBuffers], patch_position(p, patch0 + R::patch(kRound)),
                                        channel0 + R::first(kRound), [&](unsigned char* to, long long i, bool inside) {
                                          ptx::cp_async<16>(to, addends.residual + (inside ? i : 0), inside);
                                        });
        }
      }
      ptx::cp_async_commit();  // one group a round, empty or not, so that the count of pending groups tells the round
    };
    float2 added[Tile::kGroupPatches][Tile::kBlockN / 8];
    if (stores) {
      fetch.template operator()<0>();
      fetch.template operator()<1>();
#pragma unroll
      for (int i = 0; i < Tile::kGroupPatches; ++i) {
        fetch_bias<Tile>(p, addends.bias, channel0, added[i]);
        const int image = patch_position(p, patch0 + i).image;
        if (!addends.e || image >= p.n) continue;
        const float* const e = addends.e + static_cast<long long>(image) * addends.pitch;
#pragma unroll
        for (int j = 0; j < Tile::kBlockN / 8; ++j) {
          const int channel = channel0 + 8 * j + static_cast<int>(threadIdx.x) % 4 * 2;
          if (channel >= p.k) continue;
          const float2 pair = *reinterpret_cast<const float2*>(e + channel);
          added[i][j].x += pair.x, added[i][j].y += pair.y;
        }
      }
    }

    float sum[Tile::kGroupPatches][Tile::kBlockN / 2];
    multiply_tile<T>(smem, tiles.chunks, group, elected, a, b, sum);
    if constexpr (Tile::kSplitK) {
      add_halves(smem, group, reduce_parity, sum[0]);
      reduce_parity ^= 1;
      if (!stores) continue;
    }

    const auto store = [&]<int kRound>() {
      constexpr int kPatchOfTile = R::patch(kRound), kFirst = R::first(kRound), kChannels = R::channels(kRound);
      unsigned char* const staging = rows[kRound % R::kBuffers];
      ptx::cp_async_wait<R::kBuffers - 1>();
      __syncwarp();
      const float* const sums = sum[kPatchOfTile] + kFirst / 2;
      const float2* const more = added[kPatchOfTile] + kFirst / 8;
      addends.residual ? finish_sums<T, kChannels, true>(staging, sums, more)
                       : finish_sums<T, kChannels, false>(staging, sums, more);
      __syncwarp();
      for_runs<kChannels>(p, staging, patch_position(p, patch0 + kPatchOfTile), channel0 + kFirst,
                          [&](const unsigned char* from, long long i, bool inside) {
                            if (inside) *reinterpret_cast<uint4*>(y + i) = *reinterpret_cast<const uint4*>(from);
                          });
      __syncwarp();  // all lanes have read: the rows may be filled again
      fetch.template operator()<kRound + R::kBuffers>();
    };
    [&]<int... kRounds>(std::integer_sequence<int, kRounds...>) { (store.template operator()<kRounds>(), ...); }
    (std::make_integer_sequence<int, R::kCount>{});
  }
}

template <class T, class Tile>
KernelPlan<Fprop> tile_plan(const Problem& p, const char* name) {
  const auto bind = [p](const Fprop::Tensors& t, void*) {
    LaunchConfig config = halo_config<Tile>(p);
    config.dynamic_smem = Rounds<Tile>::kSmemBytes;
    return bind_launch(conv3x3_fprop_v14_kernel<T, Tile>, config, p, halo_map(p, t.x, AddendWeights::channels_in(p)),
                       weight_map(p, t.w, Tile::kBlockN, kChunk<T>), Addends<T>::of(p, t), static_cast<T*>(t.y),
                       loads_early(t.w));
  };
  return {.name = name, .bind = bind};
}

std::vector<KernelPlan<Fprop>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Fprop>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      return halo_plans<Fprop, AddendWeights>(
          p, [&](auto tile, const char* name) { return tile_plan<T, decltype(tile)>(p, name); });
    } else {
      return {};
    }
  });
}

const char* supports(const Problem& p) {
  if (p.c % 8 != 0 || p.k % 8 != 0) return "c or k is not a multiple of 8, of whole runs of 16 bytes";
  if (p.embedding % 2 != 0 || p.first % 2 != 0) return "the embedding's rows or its first column are odd";
  return fp32_bias_only(p);
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Fprop, {.plans = ladder::conv3x3::plans,
                                        .plan_names = {"4 patches x 128 channels", "4 patches x 64 channels",
                                                       "2 patches x 96 channels", "1 patch x 64 channels"},
                                        .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::supports,
                                        .min_arch = 90,
                                        .arch_specific = true,
                                        .needs = "c and k multiples of 8"})

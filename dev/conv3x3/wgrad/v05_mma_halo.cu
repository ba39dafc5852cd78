// Idea:   mma.sync with ldmatrix.trans on patches of 8 x 8 pixels: a block holds the sums of all nine taps, 64 output x 64
//         input channels, and multiplies each patch of dy with nine shifted views of one halo of x, stages ahead.
// Parent: v04.
// Why:    v04 fetches each pixel of x nine times and reads each fragment of dy once a tap. Here a halo is fetched once, a
//         fragment of dy meets nine of x, and a tap is a constant offset: with rows padded by 16 bytes instead of
//         swizzled, ldmatrix takes it as an immediate. Limiter left: eight warps an SM, all on mma.sync, and every block
//         writes 147 KB of partial sums.
// Needs:  nothing; cp.async where rows of c and k are multiples of 16 bytes, else single elements; a workspace. tf32 has
//         no ldmatrix.trans (it moves 16-bit elements): there fragments are single words, with rows padded by 32 bytes.

#include "dev/conv3x3/wgrad_patch.h"
#include "dev/conv3x3/wgrad_split.h"
#include "dev/ptx/cp_async.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/ldmatrix.h"
#include "dev/ptx/mma.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kWarps = 8;  // each: 64 output channels x 8 input channels x 9 taps
constexpr int kThreads = kWarps * 32;
constexpr int kRunBytes = 16;
constexpr int kFragmentsM = kTileChannels / 16;

template <class T>
struct Format {
  static constexpr int kRun = kRunBytes / sizeof(T);
  static constexpr int kRunsPerRow = kTileChannels / kRun;
  // NOTE: in bytes. 16-bit: eight rows of ldmatrix start 36 banks apart, so they cover all banks once. tf32: a
  // fragment's four pixels are 72 banks apart and its eight channels adjacent.
  static constexpr int kPitch = sizeof(T) == 4 ? 288 : 144;
  static constexpr int kStageBytes = (kPatchPixels + kHaloPixels) * kPitch;
  static constexpr int kStages = sizeof(T) == 4 ? 2 : 4;  // 94 KB in either: GPUs with 99 KB a block can run it
  static constexpr std::size_t kSmemBytes = std::size_t{kStages} * kStageBytes;
  static constexpr int kPixelsPerMma = sizeof(T) == 4 ? 8 : 16;  // whole rows of the patch
};

// Offset of a tap from tap 0, in pixels of the halo.
__host__ __device__ constexpr int halo_offset(int tap) { return tap / 3 * kHalo + tap % 3; }

// Fragments of a lane, for a few rows of a patch: dy's 64 output channels, and the warp's 8 input channels under each
// tap.
template <class T>
struct Fragments {
  std::uint32_t a[kFragmentsM][4];
  std::uint32_t b[9][2];

  // Loads from dy's patch and x's halo in shared memory, from first_row on; the warp's input channels start at c0.
  __device__ __forceinline__ void load(const unsigned char* dys, const unsigned char* xs, int first_row, int c0) {
    using F = Format<T>;
    const int lane = threadIdx.x % 32;
    if constexpr (sizeof(T) == 2) {
      // A is dy transposed: matrices are (pixels 0-7, k 0-7), (0-7, 8-15), (8-15, 0-7), (8-15, 8-15).
      const int a_pixel = first_row * kPatch + lane / 16 * 8 + lane % 8;
      const unsigned char* const a_row = dys + a_pixel * F::kPitch + lane / 8 % 2 * kRunBytes;
#pragma unroll
      for (int i = 0; i < kFragmentsM; ++i) ptx::ldmatrix_x4_trans(a[i], a_row + i * 32);
      // Load two taps per ldmatrix, the second in lanes 16-31; the last tap is loaded twice.
      const int b_pixel = (first_row + lane / 8 % 2) * kHalo + lane % 8;
      const unsigned char* const b_row = xs + b_pixel * F::kPitch + c0 * 2;
      const auto load_pair = [&](int first, int second) {
        const int between = halo_offset(second) - halo_offset(first);
        std::uint32_t pair[4];
        ptx::ldmatrix_x4_trans(pair, b_row + (halo_offset(first) + lane / 16 * between) * F::kPitch);
        b[first][0] = pair[0], b[first][1] = pair[1];
        b[second][0] = pair[2], b[second][1] = pair[3];
      };
#pragma unroll
      for (int tap = 0; tap < 9; tap += 2) load_pair(tap, tap + 1 < 9 ? tap + 1 : tap);
    } else {
      const auto word = [&](const unsigned char* rows, int pixel, int channel) {
        return *reinterpret_cast<const std::uint32_t*>(rows + pixel * F::kPitch + channel * 4);
      };
      const int group = lane / 4, pixel = lane % 4;
#pragma unroll
      for (int i = 0; i < kFragmentsM; ++i) {
        const int first = first_row * kPatch + pixel;
        a[i][0] = word(dys, first, 16 * i + group);
        a[i][1] = word(dys, first, 16 * i + group + 8);
        a[i][2] = word(dys, first + 4, 16 * i + group);
        a[i][3] = word(dys, first + 4, 16 * i + group + 8);
      }
#pragma unroll
      for (int tap = 0; tap < 9; ++tap) {
        const int first = first_row * kHalo + halo_offset(tap) + pixel;
        b[tap][0] = word(xs, first, c0 + group);
        b[tap][1] = word(xs, first + 4, c0 + group);
      }
    }
  }
};

template <class T>
__device__ __forceinline__ void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  if constexpr (sizeof(T) == 4) {
    ptx::mma_m16n8k8_tf32(d, a, b);
  } else {
    ptx::mma_m16n8k16<T>(d, a, b);
  }
}

template <class T, bool kVectors>
__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_wgrad_v05_kernel(Problem p, Split split, const T* x, const T* dy, float* partial) {
  using F = Format<T>;
  constexpr int kStages = F::kStages;
  LADDER_DYN_SMEM(smem);  // kStages times: dy [64 pixels][kPitch], then x [100 pixels][kPitch]

  const int tiles_c = ceil_div(p.c, kTileChannels);
  const int tiles_k = ceil_div(p.k, kTileChannels);
  const int c0 = blockIdx.x % tiles_c * kTileChannels;
  const int k0 = blockIdx.x / tiles_c % tiles_k * kTileChannels;
  const int split_idx = blockIdx.x / tiles_c / tiles_k;
  const int patches = num_patches(p);
  const int begin = split_idx * split.units_per_split;
  const int count = min(split.units_per_split, patches - begin);

  auto copy_run = [&](unsigned char* to, const T* row, int channel, int channels, bool inside) {
    if constexpr (kVectors) {
      const bool valid = inside && channel < channels;
      ptx::cp_async<kRunBytes>(to, valid ? row + channel : row, valid);
    } else {
      for (int j = 0; j < F::kRun; ++j) {
        reinterpret_cast<T*>(to)[j] = inside && channel + j < channels ? row[channel + j] : from_float<T>(0.0f);
      }
    }
  };
  // A patch is fetched in rounds of one run a thread: pixels of dy first, then those of x.
  constexpr int kPixelStep = kThreads / F::kRunsPerRow;
  constexpr int kRounds = ceil_div(kPatchPixels + kHaloPixels, kPixelStep);
  static_assert(kPatchPixels % kPixelStep == 0, "a round is all dy or all x");
  const int run = threadIdx.x % F::kRunsPerRow;
  const int first_pixel = threadIdx.x / F::kRunsPerRow;
  auto fetch_round = [&](const PatchPosition& position, int stage, int round) {
    const int line = round * kPixelStep + first_pixel;
    if (round == kRounds - 1 && line >= kPatchPixels + kHaloPixels) return;
    const bool is_dy = round < kPatchPixels / kPixelStep;
    const int pixel_idx = is_dy ? line : line - kPatchPixels;
    const int row = position.row + (is_dy ? pixel_idx / kPatch : pixel_idx / kHalo - 1);
    const int col = position.col + (is_dy ? pixel_idx % kPatch : pixel_idx % kHalo - 1);
    const bool inside = static_cast<unsigned>(row) < static_cast<unsigned>(p.h) &&
                        static_cast<unsigned>(col) < static_cast<unsigned>(p.w);
    const int pixel = inside ? (position.image * p.h + row) * p.w + col : 0;
    unsigned char* const to = smem + stage * F::kStageBytes + line * F::kPitch + run * kRunBytes;
    if (is_dy) {
      copy_run(to, dy + pixel * p.k, k0 + run * F::kRun, p.k, inside);
    } else {
      copy_run(to, x + pixel * p.c, c0 + run * F::kRun, p.c, inside);
    }
  };

  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  float sum[kFragmentsM][9][4] = {};
  const bool accumulates_bias_gradient = p.bias && c0 == 0 && threadIdx.x < kTileChannels;
  float bias_sum = 0;

  ptx::grid_dependency_wait();
  PatchPosition next = patch_position(p, begin);  // to be fetched
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < count) {
#pragma unroll
      for (int round = 0; round < kRounds; ++round) fetch_round(next, s, round);
    }
    next.advance(p);
    ptx::cp_async_commit();  // one group a patch, empty or not, so that the count of pending groups tells the patch
  }
  for (int i = 0; i < count; ++i) {
    ptx::cp_async_wait<kStages - 2>();
    // One barrier a patch: its copies are visible to all, and all have left the stage that is filled next.
    __syncthreads();
    const bool more = i + kStages - 1 < count;

    constexpr int kSteps = kPatchPixels / F::kPixelsPerMma;
    const unsigned char* const dys = smem + i % kStages * F::kStageBytes;
    const unsigned char* const xs = dys + kPatchPixels * F::kPitch;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      Fragments<T> fragments;
      fragments.load(dys, xs, step * F::kPixelsPerMma / kPatch, warp * 8);
      // The fetch is spread over the first steps, so that its address arithmetic runs under multiplications.
      constexpr int kRoundsPerStep = ceil_div(kRounds, kSteps);
      if (more) {
#pragma unroll
        for (int round = step * kRoundsPerStep; round < min((step + 1) * kRoundsPerStep, kRounds); ++round) {
          fetch_round(next, (i + kStages - 1) % kStages, round);
        }
      }
#pragma unroll
      for (int tap = 0; tap < 9; ++tap) {
#pragma unroll
        for (int m = 0; m < kFragmentsM; ++m) multiply<T>(sum[m][tap], fragments.a[m], fragments.b[tap]);
      }
    }
    next.advance(p);
    ptx::cp_async_commit();
    if (accumulates_bias_gradient) {
      for (int j = 0; j < kPatchPixels; ++j) {
        bias_sum += to_float(reinterpret_cast<const T*>(dys + j * F::kPitch)[threadIdx.x]);
      }
    }
  }

  ptx::grid_dependency_launch();
  float* const out = partial + static_cast<long long>(split_idx) * partial_row(p);
  const int c = c0 + warp * 8 + lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < kFragmentsM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = k0 + 16 * m + lane / 4 + 8 * half;
      if (k >= p.k) continue;
#pragma unroll
      for (int tap = 0; tap < 9; ++tap) {
        float* const to = out + (k * 9 + tap) * p.c + c;
        const float* const pair = sum[m][tap] + 2 * half;
        if (p.c % 2 == 0) {
          if (c < p.c) *reinterpret_cast<float2*>(to) = {pair[0], pair[1]};
        } else {
          if (c < p.c) to[0] = pair[0];
          if (c + 1 < p.c) to[1] = pair[1];
        }
      }
    }
  }
  const int bias_k = k0 + static_cast<int>(threadIdx.x);
  if (accumulates_bias_gradient && bias_k < p.k) out[bias_offset(p) + bias_k] = bias_sum;
}

Split split_of(const Problem& p) {
  // A patch is 4.7 MFLOP in a block; an SM does about 2.5 MFLOP a microsecond in bf16, half in tf32.
  const double unit_ns = p.dtype == Dtype::tf32 ? 3600 : 1800;
  return plan_split(partial_row(p), num_patches(p), num_patch_tiles(p),
                    {.unit_ns = unit_ns, .start_ns = 5000, .blocks_per_sm = 1})
      .split;
}

template <class T>
KernelPlan<Wgrad> split_plan(const Problem& p, const char* name, Split split) {
  const auto bind = [p, split](const Wgrad::Tensors& t, void* workspace) {
    auto* const partial = static_cast<float*>(workspace);
    const bool vectors = p.c % Format<T>::kRun == 0 && p.k % Format<T>::kRun == 0;
    return in_order({bind_launch(vectors ? conv3x3_wgrad_v05_kernel<T, true> : conv3x3_wgrad_v05_kernel<T, false>,
                                 {.grid = static_cast<unsigned>(num_patch_tiles(p)) * split.splits,
                                  .block = kThreads,
                                  .dynamic_smem = Format<T>::kSmemBytes,
                                  .overlaps_previous = true},
                                 p, split, static_cast<const T*>(t.x), static_cast<const T*>(t.dy), partial),
                     bind_reduce<T>(p, split, partial, t)});
  };
  return {.name = name, .workspace_bytes = partial_bytes(p, split), .bind = bind};
}

std::vector<KernelPlan<Wgrad>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Wgrad>> {
    using T = decltype(element);
    return {split_plan<T>(p, "pixels split over blocks", split_of(p)),
            split_plan<T>(p, "pixels in one piece", {1, num_patches(p)})};
  });
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Wgrad, {.plans = ladder::conv3x3::plans,
                                        .plan_names = {"pixels split over blocks", "pixels in one piece"},
                                        .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .min_arch = 80})

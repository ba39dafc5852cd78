// Idea:   at most three channels on one side, x's or dy's: the other, wide tensor is read once, straight into mma.sync's
//         fragments, and multiplied with all nine taps of the narrow one, 27 columns of 32. A block's warps share its
//         pixels and meet once, at its end.
// Parent: v05.
// Why:    v05 pads the side of few channels to 64, 21 times what there is to multiply, and fetches it element by element.
//         Here a product has the wide channels as M and (tap, narrow channel) as N for either side: where dy is the
//         narrow one, its pixels are looked up instead of x's and the taps run backwards. Limiter left: reading the wide
//         tensor, and the second kernel.
// Needs:  c <= 3 and k a multiple of 8, or k <= 3 and c a multiple of 8; tf32, bf16 or fp16; sm_80;
//         a workspace.

#include "dev/common/mma_operand.h"
#include "dev/common/quads.h"
#include "dev/conv3x3/wgrad_split.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kMaxNarrow = 3;
constexpr int kWideTile = 64;  // channels of the wide tensor in a block
constexpr int kWarps = 8;      // of one block an SM: as many partial sums as there are SMs
constexpr int kThreads = kWarps * 32;
constexpr int kCols = 16;  // of a patch: a row of it is a K step of mma.sync, or two of tf32's
template <class T>
constexpr int kRowsPerWarp = 8 / sizeof(T);  // 8 KB in flight, 64 an SM
template <class T>
constexpr int kRows = kWarps* kRowsPerWarp<T>;

constexpr int kTilesM = kWideTile / 16;
constexpr int kTilesN = 4;
constexpr int kOnesColumn = 9 * kMaxNarrow;  // of ones: the sums of the wide tensor
static_assert(kOnesColumn < 8 * kTilesN);

// Planes of the narrow tensor's channels in shared memory: one for each channel and column of the filter, shifted by that
// column, so that a lane's four pixels are aligned whatever its tap. Row r of the filter starts r rows down. Two more planes
// are constants.
// NOTE: one row more than the halo, so that four planes in turn, or two of fp32, begin in different banks.
template <class T>
constexpr int kPlane = (kRows<T> + 3) * kCols;  // elements
constexpr int kOnesPlane = 3 * kMaxNarrow;
constexpr int kZerosPlane = kOnesPlane + 1;
constexpr int kPlanes = kZerosPlane + 1;
static_assert(kPlane<__half> * 2 % 128 == 96 && kPlane<float> * 4 % 128 == 64);

// A warp's sums as its lanes hold them, four to a fragment: M x N tiles, and one more for dbias where dy is narrow.
constexpr int kFragments = kTilesM * kTilesN + 1;
constexpr int kBiasFragment = kFragments - 1;
constexpr int kBlockSums = kFragments * 32 * 4;
constexpr std::size_t kSumBytes = std::size_t{kWarps} * kBlockSums * sizeof(float);
static_assert(kSumBytes >= std::size_t{kPlanes} * kPlane<__half> * 2 &&
              kSumBytes >= std::size_t{kPlanes} * kPlane<float> * 4);

// Roles of x and dy: one is wide, the other narrow: it has at most kMaxNarrow channels.
struct OperandRoles {
  bool narrow_x;  // else dy is narrow
  int wide_channels, narrow_channels;
};

__host__ __device__ __forceinline__ OperandRoles roles_of(const Problem& p) {
  const bool narrow_x = p.c <= kMaxNarrow;
  return {narrow_x, narrow_x ? p.k : p.c, narrow_x ? p.c : p.k};
}

// Returns the N tile in which the filter's middle tap begins: under that tap, a narrow dy's channels are their own pixel's.
__host__ __device__ __forceinline__ int bias_tile(int narrow_channels) { return 4 * narrow_channels / 8; }
static_assert((4 * kMaxNarrow + kMaxNarrow - 1) / 8 == 4 * kMaxNarrow / 8 && 4 * 2 / 8 == (4 * 2 + 1) / 8,
              "and in which it ends");

// Position of a patch. Patches are numbered columns fastest, then rows, then images.
struct PatchOrigin {
  int image, row, col;
};

template <class T>
__host__ __device__ __forceinline__ int num_patches(const Problem& p) {
  return p.n * ceil_div(p.h, kRows<T>) * ceil_div(p.w, kCols);
}

template <class T>
__device__ __forceinline__ PatchOrigin patch_origin(const Problem& p, int patch) {
  const int patches_w = ceil_div(p.w, kCols);
  const int patches_h = ceil_div(p.h, kRows<T>);
  return {patch / patches_w / patches_h, patch / patches_w % patches_h * kRows<T>, patch % patches_w * kCols};
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    conv3x3_wgrad_v09_kernel(Problem p, Split split, const T* wide, const T* narrow, float* partial) {
  constexpr int kRowsPerWarp = conv3x3::kRowsPerWarp<T>, kRows = conv3x3::kRows<T>, kPlane = conv3x3::kPlane<T>;
  LADDER_DYN_SMEM(smem);  // the planes, then every warp's sums
  T* const planes = reinterpret_cast<T*>(smem);
  const OperandRoles roles = roles_of(p);
  const int tiles = ceil_div(roles.wide_channels, kWideTile);
  const int channel0 = blockIdx.x % tiles * kWideTile;
  const int split_idx = blockIdx.x / tiles;
  const int begin = split_idx * split.units_per_split;
  const int end = min(begin + split.units_per_split, num_patches<T>(p));

  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int g = lane / 4;
  const int t = lane % 4;
  // Loads eight channels of four pixels of the warp's row i.
  constexpr int kParts = sizeof(T) / 2;  // of eight channels, 16 bytes each
  const auto load_row = [&](const PatchOrigin& origin, int i, uint4(&pixels)[4][kParts]) {
    const int row = origin.row + warp * kRowsPerWarp + i;
    const int channel = channel0 + g * 8;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int col = origin.col + t * 4 + j;
      const bool exists = row < p.h && col < p.w && channel < roles.wide_channels;
      const T* const from = wide + ((origin.image * p.h + row) * p.w + col) * roles.wide_channels + channel;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        pixels[j][part] = exists ? reinterpret_cast<const uint4*>(from)[part] : uint4{0, 0, 0, 0};
      }
    }
  };
  constexpr int kHaloCols = kCols + 2;
  constexpr int kHaloPixels = (kRows + 2) * kHaloCols;
  constexpr int kHaloRounds = ceil_div(kHaloPixels, kThreads);
  T halo[kHaloRounds][kMaxNarrow];  // of the narrow tensor
  const auto load_halo = [&](const PatchOrigin& origin) {
#pragma unroll
    for (int i = 0; i < kHaloRounds; ++i) {
      const int pixel = i * kThreads + threadIdx.x;
      const int row = origin.row + pixel / kHaloCols - 1;
      const int col = origin.col + pixel % kHaloCols - 1;
      const bool inside = pixel < kHaloPixels && static_cast<unsigned>(row) < static_cast<unsigned>(p.h) &&
                          static_cast<unsigned>(col) < static_cast<unsigned>(p.w);
      const T* const from = narrow + (inside ? ((origin.image * p.h + row) * p.w + col) * roles.narrow_channels : 0);
#pragma unroll
      for (int j = 0; j < kMaxNarrow; ++j)
        halo[i][j] = inside && j < roles.narrow_channels ? from[j] : from_float<T>(0.0f);
    }
  };
  ptx::grid_dependency_wait();
  PatchOrigin origin = patch_origin<T>(p, begin);
  load_halo(origin);
  uint4 pixels[kRowsPerWarp][4][kParts];
#pragma unroll
  for (int i = 0; i < kRowsPerWarp; ++i) load_row(origin, i, pixels[i]);

  for (int i = threadIdx.x; i < 2 * kPlane; i += kThreads) {
    planes[kOnesPlane * kPlane + i] = from_float<T>(i < kPlane ? 1.0f : 0.0f);
  }

  // Offsets of columns 8j + g of N in the planes, at the lane's pixels: 4t to 4t + 3 of a row are the lane's part of K.
  int columns[kTilesN];
#pragma unroll
  for (int j = 0; j < kTilesN; ++j) {
    const int column = j * 8 + g;
    const int tap = column / roles.narrow_channels;
    const int plane = tap < 9 ? tap % 3 * kMaxNarrow + column % roles.narrow_channels
                              : (column == kOnesColumn ? kOnesPlane : kZerosPlane);
    columns[j] = plane * kPlane + (tap < 9 ? tap / 3 * kCols : 0) + t * 4;
  }

  float sum[kTilesM][kTilesN][4] = {};
  float bias_sum[4] = {};
  for (int patch = begin; patch < end; ++patch) {
    __syncthreads();  // all are done with the patch before
#pragma unroll
    for (int i = 0; i < kHaloRounds; ++i) {
      const int pixel = i * kThreads + threadIdx.x;
      if (pixel >= kHaloPixels) break;
#pragma unroll
      for (int s = 0; s < 3; ++s) {
        const int col = pixel % kHaloCols - s;
        if (col < 0 || col >= kCols) continue;
#pragma unroll
        for (int j = 0; j < kMaxNarrow; ++j) {
          planes[(s * kMaxNarrow + j) * kPlane + pixel / kHaloCols * kCols + col] = halo[i][j];
        }
      }
    }
    __syncthreads();

    const bool more = patch + 1 < end;
    if (more) {
      origin = patch_origin<T>(p, patch + 1);
      load_halo(origin);
    }
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) {
      std::uint32_t b[kTilesN][2 * kParts];
#pragma unroll
      for (int j = 0; j < kTilesN; ++j) {
        const T* const from = planes + columns[j] + (warp * kRowsPerWarp + i) * kCols;
        const auto four = *reinterpret_cast<const Quad<T>*>(from);
        b[j][0] = four.x, b[j][1] = four.y;
        if constexpr (sizeof(T) == 4) b[j][2] = four.z, b[j][3] = four.w;
      }
      const auto word = [&](int pixel, int n) {
        const uint4& words = pixels[i][pixel][n / 4];
        return n % 4 == 0 ? words.x : n % 4 == 1 ? words.y : n % 4 == 2 ? words.z : words.w;
      };
      // A is the wide tensor transposed: rows g and g + 8 of M tile m are the channels 2m and 2m + 1 of the lane's eight.
#pragma unroll
      for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
        for (int step = 0; step < kParts; ++step) {
          std::uint32_t a[4];
          if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int e = 0; e < 4; ++e) a[e] = word(2 * step + e / 2, 2 * m + e % 2);
          } else {
            constexpr unsigned kLower = 0x5410, kUpper = 0x7632;  // halves of two words side by side
            a[0] = __byte_perm(word(0, m), word(1, m), kLower), a[1] = __byte_perm(word(0, m), word(1, m), kUpper);
            a[2] = __byte_perm(word(2, m), word(3, m), kLower), a[3] = __byte_perm(word(2, m), word(3, m), kUpper);
          }
#pragma unroll
          for (int j = 0; j < kTilesN; ++j) multiply<T>(sum[m][j], a, b[j][2 * step], b[j][2 * step + 1]);
        }
      }
      if (p.bias && !roles.narrow_x) {
        const auto ones = *reinterpret_cast<const std::uint32_t*>(planes + kOnesPlane * kPlane);
        const bool first = bias_tile(roles.narrow_channels) == 0;
#pragma unroll
        for (int step = 0; step < kParts; ++step) {
          const std::uint32_t pair[2] = {first ? b[0][2 * step] : b[1][2 * step],
                                         first ? b[0][2 * step + 1] : b[1][2 * step + 1]};
          multiply<T>(bias_sum, {ones, ones, ones, ones}, pair[0], pair[1]);
        }
      }
      // Refill the registers that were just read: 64 KB an SM are in flight until the last patch.
      if (more) load_row(origin, i, pixels[i]);
    }
  }

  ptx::grid_dependency_launch();
  // Reuse the planes' shared memory for the sums.
  __syncthreads();
  float4* const sums = reinterpret_cast<float4*>(smem);  // [warp][fragment][lane]
#pragma unroll
  for (int i = 0; i < kFragments; ++i) {
    const float(&four)[4] = i == kBiasFragment ? bias_sum : sum[i / kTilesN][i % kTilesN];
    sums[(warp * kFragments + i) * 32 + lane] = {four[0], four[1], four[2], four[3]};
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kFragments * 32; i += kThreads) {
    float4 total = sums[i];
#pragma unroll
    for (int other = 1; other < kWarps; ++other) {
      const float4 v = sums[other * kFragments * 32 + i];
      total.x += v.x, total.y += v.y, total.z += v.z, total.w += v.w;
    }
    reinterpret_cast<float4*>(partial)[static_cast<long long>(blockIdx.x) * kFragments * 32 + i] = total;
  }
}

// Sums of a split, in the order of the fragments of its blocks.
int sums_of_split(const Problem& p) { return ceil_div(roles_of(p).wide_channels, kWideTile) * kBlockSums; }

template <class T, class P>
__global__ void __launch_bounds__(kReduceThreads)
    conv3x3_wgrad_v09_reduce_kernel(Problem p, int splits, int row, const float* partial, T* dw, P* dbias) {
  ptx::grid_dependency_wait();
  const auto [index, holder, total] = sum_rows<kMaxReduceGroups>(partial, splits, row);
  ptx::grid_dependency_launch();
  if (!holder) return;
  const OperandRoles roles = roles_of(p);
  const int fragment = index % kBlockSums / 128;
  const int g = index % 128 / 16;
  const int t = index % 16 / 4;
  const float values[4] = {total.x, total.y, total.z, total.w};
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if (fragment == kBiasFragment) {
      const int k = bias_tile(roles.narrow_channels) * 8 + t * 2 + e - 4 * roles.narrow_channels;
      if (dbias && !roles.narrow_x && index < kBlockSums && g == 0 && e < 2 && k >= 0 && k < p.k)
        dbias[k] = from_float<P>(values[e]);
      continue;
    }
    const int channel = index / kBlockSums * kWideTile + g * 8 + fragment / kTilesN * 2 + e / 2;
    const int column = fragment % kTilesN * 8 + t * 2 + e % 2;
    if (channel >= roles.wide_channels) continue;
    if (column < 9 * roles.narrow_channels) {
      const int tap = column / roles.narrow_channels;
      const int narrow_channel = column % roles.narrow_channels;
      const int to =
          roles.narrow_x ? (channel * 9 + tap) * p.c + narrow_channel : (narrow_channel * 9 + 8 - tap) * p.c + channel;
      dw[to] = from_float<T>(values[e]);
    } else if (column == kOnesColumn && dbias && roles.narrow_x) {
      dbias[channel] = from_float<P>(values[e]);
    }
  }
}

// A patch is 64 KB of the wide tensor, for which an SM waits 2 us where all of them read.
template <class T>
Split split_of(const Problem& p) {
  const BlockCost cost{.unit_ns = 2000, .start_ns = 2000, .blocks_per_sm = 1};
  return plan_split(sums_of_split(p), num_patches<T>(p), ceil_div(roles_of(p).wide_channels, kWideTile), cost).split;
}

template <class T>
KernelPlan<Wgrad> split_plan(const Problem& p, const char* name, Split split) {
  const int row = sums_of_split(p);
  const auto bind = [p, split, row](const Wgrad::Tensors& t, void* workspace) {
    auto* const partial = static_cast<float*>(workspace);
    const bool narrow_x = roles_of(p).narrow_x;
    const auto blocks = static_cast<unsigned>(split.splits * (row / kBlockSums));
    BoundLaunch reduce = with_parameter_type<T>(p.params16, [&](auto parameter) {
      using P = decltype(parameter);
      return bind_launch(
          conv3x3_wgrad_v09_reduce_kernel<T, P>,
          {.grid = reduce_blocks<kMaxReduceGroups>(row), .block = kReduceThreads, .overlaps_previous = true}, p,
          split.splits, row, partial, static_cast<T*>(t.dw), typed<P>(t.dbias));
    });
    return in_order(
        {bind_launch(conv3x3_wgrad_v09_kernel<T>,
                     {.grid = blocks, .block = kThreads, .dynamic_smem = kSumBytes, .overlaps_previous = true}, p,
                     split, static_cast<const T*>(narrow_x ? t.dy : t.x), static_cast<const T*>(narrow_x ? t.x : t.dy),
                     partial),
         std::move(reduce)});
  };
  return {.name = name, .workspace_bytes = sizeof(float) * split.splits * row, .bind = bind};
}

std::vector<KernelPlan<Wgrad>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Wgrad>> {
    using T = decltype(element);
    return {split_plan<T>(p, "pixels split over blocks", split_of<T>(p)),
            split_plan<T>(p, "pixels in one piece", {1, num_patches<T>(p)})};
  });
}

const char* supports(const Problem& p) {
  const bool supported = (p.c <= kMaxNarrow && p.k % 8 == 0) || (p.k <= kMaxNarrow && p.c % 8 == 0);
  return supported ? nullptr : "neither c nor k is at most 3 with the other a multiple of 8";
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Wgrad, {.plans = ladder::conv3x3::plans,
                                        .plan_names = {"pixels split over blocks", "pixels in one piece"},
                                        .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::supports,
                                        .min_arch = 80,
                                        .needs = "c or k at most 3, the other a multiple of 8; a workspace"})

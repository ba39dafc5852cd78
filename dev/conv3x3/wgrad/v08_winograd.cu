// Idea:   Winograd's minimal filtering in fp32, transposed: transform 4x4 patches of dy and the 6x6 of x around them, 36
//         matrix products summed over patches, transform the 36 sums back to 3x3. Images go through in slabs whose
//         transformed operands stay in L2.
// Parent: v03.
// Why:    v03 is bound by the FMA pipe, as every direct sum is. A patch takes 144 multiplications a pair of channels
//         directly and 36 here. With y = A^T [(G w) (B^T x)] (Lavin and Gray 2016, section 4.3), the gradient is dw =
//         G^T [(A dy) (B^T x)], so forward's matrices serve, transposed. Limiter left: 2.25 times the bytes of x and dy,
//         written and read again, and four times the partial sums.
// Needs:  fp32; a workspace. Rounding errors grow with the transforms' coefficients: see .error_growth below.

#include <algorithm>

#include "dev/common/ffma_tile.h"
#include "dev/conv3x3/wgrad_split.h"
#include "dev/conv3x3/winograd.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv3x3 {
namespace {

using namespace winograd;

constexpr int kSumPoint = kIn + 1;  // row 1 of A is all ones: this point of A dy A^T is the patch's sum, hence dbias
constexpr int kThreads = 256;       // of the transforms

// A dy and G^T m, along one dimension.
__device__ __forceinline__ void transform_gradient(const float (&d)[kOut], float (&t)[kIn]) {
  const float even = d[0] + d[2], odd = d[1] + d[3];
  const float even4 = d[0] + 4 * d[2], odd4 = 2 * d[1] + 8 * d[3];
  t[0] = d[0];
  t[1] = even + odd;
  t[2] = even - odd;
  t[3] = even4 + odd4;
  t[4] = even4 - odd4;
  t[5] = d[3];
}
__device__ __forceinline__ void transform_sums(const float (&m)[kIn], float (&t)[3]) {
  const float sum12 = m[1] + m[2], sum34 = m[3] + m[4];
  t[0] = m[0] * 0.25f - sum12 * (1.0f / 6) + sum34 * (1.0f / 24);
  t[1] = (m[2] - m[1]) * (1.0f / 6) + (m[3] - m[4]) * (1.0f / 12);
  t[2] = (sum34 - sum12) * (1.0f / 6) + m[5];
}

// A patch of kSize x kSize pixels of one channel from (row0, col0) on, zero outside the image, transformed along both
// dimensions by f; point i goes to to[i * plane].
template <int kSize, class F>
__device__ __forceinline__ void transform_patch(const Problem& p, const float* image, int channels, int row0, int col0,
                                                float* to, long long plane, F f) {
  float columns[kIn][kSize];
#pragma unroll
  for (int j = 0; j < kSize; ++j) {
    float d[kSize];
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      const int row = row0 + i, col = col0 + j;
      const bool inside = row >= 0 && row < p.h && col >= 0 && col < p.w;
      d[i] = inside ? image[(row * p.w + col) * channels] : 0.0f;
    }
    float t[kIn];
    f(d, t);
#pragma unroll
    for (int i = 0; i < kIn; ++i) columns[i][j] = t[i];
  }
#pragma unroll
  for (int i = 0; i < kIn; ++i) {
    float t[kIn];
    f(columns[i], t);
#pragma unroll
    for (int j = 0; j < kIn; ++j) to[(i * kIn + j) * plane] = t[j];
  }
}

// v [36][patch][c] from x, u [36][patch][k] from dy; a thread a patch and channel, channels fastest.
__global__ void __launch_bounds__(kThreads)
    conv3x3_wgrad_v08_transform_kernel(Problem p, Slab slab, const float* x, const float* dy, float* v, float* u) {
  const long long index = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  const long long plane_v = static_cast<long long>(slab.patches()) * p.c;
  const long long plane_u = static_cast<long long>(slab.patches()) * p.k;
  if (index >= plane_v + plane_u) return;
  const bool is_x = index < plane_v;
  const long long element_idx = is_x ? index : index - plane_v;
  const int channels = is_x ? p.c : p.k;
  const int channel = static_cast<int>(element_idx % channels);
  const int patch = static_cast<int>(element_idx / channels);
  const int col0 = patch % slab.patches_w * kOut;
  const int row0 = patch / slab.patches_w % slab.patches_h * kOut;
  const int image = slab.image0 + patch / slab.patches_w / slab.patches_h;
  const int offset = image * p.h * p.w * channels + channel;
  ptx::grid_dependency_wait();
  if (is_x) {
    transform_patch<kIn>(p, x + offset, channels, row0 - 1, col0 - 1, v + element_idx, plane_v,
                         [](const float(&d)[kIn], float(&t)[kIn]) { transform_input(d, t); });
  } else {
    transform_patch<kOut>(p, dy + offset, channels, row0, col0, u + element_idx, plane_u,
                          [](const float(&d)[kOut], float(&t)[kIn]) { transform_gradient(d, t); });
  }
}

__host__ __device__ inline int sums_row(const Problem& p) { return kPoints * p.c * p.k + padded(p.k); }

// Row `split` of sums [split]: [36][k][c] = u [36][patch][k] transposed times v [36][patch][c] over a range of the
// slab's patches, then [k] for dbias. A split without patches is zero.
template <class Tile, int kChunk, int kVec>
__global__ void __launch_bounds__(Tile::kThreads)
    conv3x3_wgrad_v08_product_kernel(Problem p, int patches, int patches_per_split, const float* v, const float* u,
                                     float* sums) {
  constexpr int kBlockM = Tile::kBlockM, kBlockN = Tile::kBlockN;
  constexpr int kPitchM = Tile::kPitchM, kPitchN = Tile::kPitchN;
  constexpr int kRowStepA = Tile::kThreads / (kBlockM / kVec);
  constexpr int kRowStepB = Tile::kThreads / (kBlockN / kVec);
  constexpr int kLoadsA = kChunk / kRowStepA;
  constexpr int kLoadsB = kChunk / kRowStepB;
  static_assert(kLoadsA * kRowStepA == kChunk && kLoadsB * kRowStepB == kChunk, "loads divide evenly");
  LADDER_SHARED(float4, as4, [2][kChunk * kPitchM / 4]);
  LADDER_SHARED(float4, bs4, [2][kChunk * kPitchN / 4]);

  const int blocks_n = ceil_div(p.c, kBlockN);
  const int blocks_m = ceil_div(p.k, kBlockM);
  const int n0 = blockIdx.x % blocks_n * kBlockN;
  const int m0 = blockIdx.x / blocks_n % blocks_m * kBlockM;
  const int point = blockIdx.x / blocks_n / blocks_m % kPoints;
  const int split_idx = blockIdx.x / blocks_n / blocks_m / kPoints;
  const int begin = split_idx * patches_per_split;
  const int end = min(begin + patches_per_split, patches);
  v += static_cast<long long>(point) * patches * p.c;
  u += static_cast<long long>(point) * patches * p.k;
  sums += static_cast<long long>(split_idx) * sums_row(p);

  const int load_m = threadIdx.x % (kBlockM / kVec) * kVec;
  const int load_n = threadIdx.x % (kBlockN / kVec) * kVec;
  const int row_a = threadIdx.x / (kBlockM / kVec);
  const int row_b = threadIdx.x / (kBlockN / kVec);
  float a_next[kLoadsA][kVec];
  float b_next[kLoadsB][kVec];
  auto fetch = [&](int patch0) {
#pragma unroll
    for (int i = 0; i < kLoadsA; ++i) {
      const int patch = patch0 + row_a + i * kRowStepA;
      fetch_run(a_next[i], u + patch * p.k + m0 + load_m, patch < end && m0 + load_m < p.k);
    }
#pragma unroll
    for (int i = 0; i < kLoadsB; ++i) {
      const int patch = patch0 + row_b + i * kRowStepB;
      fetch_run(b_next[i], v + patch * p.c + n0 + load_n, patch < end && n0 + load_n < p.c);
    }
  };
  auto put = [&](int stage) {
    float* const as = reinterpret_cast<float*>(as4[stage]) + row_a * kPitchM + load_m;
    float* const bs = reinterpret_cast<float*>(bs4[stage]) + row_b * kPitchN + load_n;
#pragma unroll
    for (int i = 0; i < kLoadsA; ++i) put_run(as + i * kRowStepA * kPitchM, a_next[i]);
#pragma unroll
    for (int i = 0; i < kLoadsB; ++i) put_run(bs + i * kRowStepB * kPitchN, b_next[i]);
  };

  float sum[Tile::kThreadM][Tile::kThreadN] = {};
  const bool accumulates_bias_gradient = p.bias && point == kSumPoint && n0 == 0 && threadIdx.x < kBlockM;
  float bias_sum = 0;
  ptx::grid_dependency_wait();
  if (begin < end) fetch(begin);
  if (begin < end) put(0);
  __syncthreads();
  int stage = 0;
  for (int patch0 = begin; patch0 < end; patch0 += kChunk, stage ^= 1) {
    const bool more = patch0 + kChunk < end;
    if (more) fetch(patch0 + kChunk);
    const float* const as = reinterpret_cast<const float*>(as4[stage]);
    Tile::template multiply<kChunk>(sum, as, reinterpret_cast<const float*>(bs4[stage]));
    if (accumulates_bias_gradient) {
      for (int i = 0; i < kChunk; ++i) bias_sum += as[i * kPitchM + threadIdx.x];
    }
    if (more) put(stage ^ 1);
    __syncthreads();
  }

  ptx::grid_dependency_launch();
#pragma unroll
  for (int i = 0; i < Tile::kThreadM; ++i) {
    const int k = m0 + Tile::row(i);
    if (k >= p.k) continue;
#pragma unroll
    for (int j = 0; j < Tile::kThreadN; j += 4) {
      const int c = n0 + Tile::col(j);
      float* const to = sums + (point * p.k + k) * p.c + c;
      if constexpr (kVec == 4) {
        if (c < p.c) *reinterpret_cast<float4*>(to) = {sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]};
      } else {
#pragma unroll
        for (int l = 0; l < 4; ++l) {
          if (c + l < p.c) to[l] = sum[i][j + l];
        }
      }
    }
  }
  const int bias_k = m0 + static_cast<int>(threadIdx.x);
  if (accumulates_bias_gradient && bias_k < p.k) sums[kPoints * p.c * p.k + bias_k] = bias_sum;
}

// Adds up all rows of `sums` into row 0.
__global__ void __launch_bounds__(kReduceThreads) conv3x3_wgrad_v08_reduce_kernel(Problem p, int rows, float* sums) {
  ptx::grid_dependency_wait();
  const auto [index, holder, sum] = sum_rows<kMaxReduceGroups>(sums, rows, sums_row(p));
  ptx::grid_dependency_launch();
  if (holder) *reinterpret_cast<float4*>(sums + index) = sum;
}

// dw and dbias from the sums of all patches; a thread a pair of channels, c fastest.
__global__ void __launch_bounds__(kThreads)
    conv3x3_wgrad_v08_filter_kernel(Problem p, const float* sums, float* dw, float* dbias) {
  const int index = blockIdx.x * kThreads + threadIdx.x;
  ptx::grid_dependency_wait();
  if (dbias && index < p.k) dbias[index] = sums[kPoints * p.c * p.k + index];
  if (index >= p.c * p.k) return;
  float rows[3][kIn];
#pragma unroll
  for (int j = 0; j < kIn; ++j) {
    float column[kIn];
#pragma unroll
    for (int i = 0; i < kIn; ++i) column[i] = sums[(i * kIn + j) * p.c * p.k + index];
    float t[3];
    transform_sums(column, t);
#pragma unroll
    for (int r = 0; r < 3; ++r) rows[r][j] = t[r];
  }
  ptx::grid_dependency_launch();
  float* const out = dw + index / p.c * 9 * p.c + index % p.c;
#pragma unroll
  for (int r = 0; r < 3; ++r) {
    float t[3];
    transform_sums(rows[r], t);
#pragma unroll
    for (int s = 0; s < 3; ++s) out[(r * 3 + s) * p.c] = t[s];
  }
}

using Large = FfmaTile<128, 64, 8, 8>;  // 157 registers: three blocks an SM
using Small = FfmaTile<64, 64, 8, 4>;   // 83 registers: five
constexpr int kChunk = 16;              // patches staged at a time

bool is_large(const Problem& p) { return p.k % 128 == 0 && p.c % 4 == 0; }
int num_tiles(const Problem& p) {
  return kPoints * ceil_div(p.k, is_large(p) ? Large::kBlockM : Small::kBlockM) * ceil_div(p.c, Small::kBlockN);
}

// Images of a slab, slabs, and blocks over which each tile's patches are split. plan_of() chooses the least time among
// the slabs whose transformed operands fit L2.
struct WinogradPlan {
  int slab_images = 1;
  int slabs = 1;
  int splits = 1;
  std::size_t patches(const Problem& p) const { return static_cast<std::size_t>(slab_images) * patches_per_image(p); }
  std::size_t workspace_floats(const Problem& p) const {
    return patches(p) * kPoints * (p.c + p.k) + static_cast<std::size_t>(slabs) * splits * sums_row(p);
  }
};

WinogradPlan plan_of(const Problem& p) {
  constexpr double kSlabNs = 4000;  // two launches and their tails
  constexpr double kTransformBytesPerNs = 3000;
  constexpr double kFlopPerNs = 300;  // of an SM
  const int block_m = is_large(p) ? Large::kBlockM : Small::kBlockM;
  const int blocks_per_sm = is_large(p) ? 3 : 5;
  const BlockCost cost{.unit_ns = 2.0 * block_m * Small::kBlockN * kChunk * blocks_per_sm / kFlopPerNs,
                       .start_ns = 2000,
                       .blocks_per_sm = blocks_per_sm};
  const double bytes_per_image = 4.0 * kPoints * patches_per_image(p) * (p.c + p.k);
  WinogradPlan best;
  double least = 0;
  for (int images = 1; images <= p.n; ++images) {
    if (images > 1 && images * bytes_per_image > static_cast<double>(backend::device().l2_bytes)) break;
    const int slabs = ceil_div(p.n, images);
    if (ceil_div(p.n, slabs) != images) continue;  // the last slab would be smaller than it need be
    const SplitPlan split =
        plan_split(sums_row(p), ceil_div(images * patches_per_image(p), kChunk), num_tiles(p), cost);
    const double ns = slabs * (split.ns + kSlabNs + images * bytes_per_image / kTransformBytesPerNs);
    if (images == 1 || ns < least) {
      least = ns;
      best = {images, slabs, split.split.splits};
    }
  }
  return best;
}

const char* supports(const Problem& p) {
  constexpr std::int64_t kMaxIndex = 2147483647;
  return std::int64_t{kPoints} * p.c * p.k + p.k < kMaxIndex ? nullptr : "36ck sums do not fit 32-bit indices";
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float) * plan_of(p).workspace_floats(p); }

unsigned blocks_for(long long threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

void launch_product(const Problem& p, int patches, int splits, const float* v, const float* u, float* sums,
                    Stream stream) {
  const auto blocks = static_cast<unsigned>(num_tiles(p)) * splits;
  const int patches_per_split = ceil_div(ceil_div(patches, kChunk), splits) * kChunk;
  if (is_large(p)) {
    ladder::launch(conv3x3_wgrad_v08_product_kernel<Large, kChunk, 4>,
                   {.grid = blocks, .block = Large::kThreads, .overlaps_previous = true}, stream, p, patches,
                   patches_per_split, v, u, sums);
  } else {
    auto kernel = p.c % 4 == 0 && p.k % 4 == 0 ? conv3x3_wgrad_v08_product_kernel<Small, kChunk, 4>
                                               : conv3x3_wgrad_v08_product_kernel<Small, kChunk, 1>;
    ladder::launch(kernel, {.grid = blocks, .block = Small::kThreads, .overlaps_previous = true}, stream, p, patches,
                   patches_per_split, v, u, sums);
  }
}

void launch(const Problem& p, const Wgrad::Tensors& t, void* workspace, Stream stream) {
  const WinogradPlan plan = plan_of(p);
  float* const v = static_cast<float*>(workspace);
  float* const u = v + plan.patches(p) * kPoints * p.c;
  float* const sums = u + plan.patches(p) * kPoints * p.k;
  for (int i = 0; i < plan.slabs; ++i) {
    const int image0 = i * plan.slab_images;
    const Slab slab{image0, std::min(plan.slab_images, p.n - image0), ceil_div(p.h, kOut), ceil_div(p.w, kOut)};
    ladder::launch(conv3x3_wgrad_v08_transform_kernel,
                   {.grid = blocks_for(static_cast<long long>(slab.patches()) * (p.c + p.k)),
                    .block = kThreads,
                    .overlaps_previous = true},
                   stream, p, slab, static_cast<const float*>(t.x), static_cast<const float*>(t.dy), v, u);
    launch_product(p, slab.patches(), plan.splits, v, u, sums + std::size_t(i) * plan.splits * sums_row(p), stream);
  }
  const int rows = plan.slabs * plan.splits;
  if (rows > 1) {
    ladder::launch(
        conv3x3_wgrad_v08_reduce_kernel,
        {.grid = reduce_blocks<kMaxReduceGroups>(sums_row(p)), .block = kReduceThreads, .overlaps_previous = true},
        stream, p, rows, sums);
  }
  ladder::launch(conv3x3_wgrad_v08_filter_kernel,
                 {.grid = blocks_for(static_cast<long long>(p.c) * p.k), .block = kThreads, .overlaps_previous = true},
                 stream, p, static_cast<const float*>(sums), static_cast<float*>(t.dw), t.dbias);
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Wgrad,
               {.launch = ladder::conv3x3::launch,
                .dtypes = {ladder::Dtype::f32},
                .supports = ladder::conv3x3::supports,
                .workspace_bytes = ladder::conv3x3::workspace_bytes,
                .error_growth = 16,
                .exact = false,
                .least_arithmetic = 0.25,
                .needs = "a workspace; Winograd, so rounding errors several times a plain sum's"})

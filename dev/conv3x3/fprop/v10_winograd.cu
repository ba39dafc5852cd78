// Idea:   Winograd's minimal filtering F(4x4, 3x3) in fp32: transform x and w, 36 matrix products, transform back. The
//         batch goes through in slabs of images whose intermediates stay in L2.
// Parent: v05.
// Why:    v05 is bound by the FMA pipe, and every direct convolution is. A 4x4 patch of outputs takes 144 multiplications
//         a channel directly and 36 here (Lavin and Gray 2016, "Fast Algorithms for Convolutional Neural Networks",
//         section 4.3), so four times the arithmetic ceiling for 2.25 times the bytes of x and y, written and read again.
//         Limiter left: those bytes, and the launches of the slabs.
// Needs:  fp32; a workspace. Rounding errors grow with the transforms' coefficients: see .error_growth below.

#include <algorithm>

#include "core/backend.h"
#include "dev/common/ffma_tile.h"
#include "dev/conv3x3/conv3x3.h"
#include "dev/conv3x3/winograd.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv3x3 {
namespace {

using namespace winograd;

constexpr int kThreads = 256;  // of the transforms

// G g and A^T m of Lavin and Gray, along one dimension.
__device__ __forceinline__ void transform_filter(const float (&g)[3], float (&t)[kIn]) {
  const float even = g[0] + g[2];
  const float mixed = g[0] * (1.0f / 24) + g[2] * (1.0f / 6);
  t[0] = g[0] * 0.25f;
  t[1] = (even + g[1]) * (-1.0f / 6);
  t[2] = (even - g[1]) * (-1.0f / 6);
  t[3] = mixed + g[1] * (1.0f / 12);
  t[4] = mixed - g[1] * (1.0f / 12);
  t[5] = g[2];
}
__device__ __forceinline__ void transform_output(const float (&m)[kIn], float (&t)[kOut]) {
  const float sum12 = m[1] + m[2], difference12 = m[1] - m[2];
  const float sum34 = m[3] + m[4], difference34 = m[3] - m[4];
  t[0] = m[0] + sum12 + sum34;
  t[1] = difference12 + 2 * difference34;
  t[2] = sum12 + 4 * sum34;
  t[3] = difference12 + 8 * difference34 + m[5];
}

// u [36][k][c] from w [k][3][3][c]; a thread an output and input channel.
__global__ void __launch_bounds__(kThreads) conv3x3_fprop_v10_filter_kernel(Problem p, const float* w, float* u) {
  const int index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= p.k * p.c) return;
  ptx::grid_dependency_wait();
  const float* from = w + static_cast<long long>(index / p.c) * 9 * p.c + index % p.c;
  float rows[kIn][3];
#pragma unroll
  for (int s = 0; s < 3; ++s) {
    const float g[3] = {from[s * p.c], from[(3 + s) * p.c], from[(6 + s) * p.c]};
    float t[kIn];
    transform_filter(g, t);
#pragma unroll
    for (int i = 0; i < kIn; ++i) rows[i][s] = t[i];
  }
  ptx::grid_dependency_launch();
#pragma unroll
  for (int i = 0; i < kIn; ++i) {
    float t[kIn];
    transform_filter(rows[i], t);
#pragma unroll
    for (int j = 0; j < kIn; ++j) u[static_cast<long long>(i * kIn + j) * p.k * p.c + index] = t[j];
  }
}

// v [36][patch][c] from x; a thread a patch and channel, channels fastest.
__global__ void __launch_bounds__(kThreads)
    conv3x3_fprop_v10_input_kernel(Problem p, Slab slab, const float* x, float* v) {
  const long long index = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  if (index >= static_cast<long long>(slab.patches()) * p.c) return;
  const int c = static_cast<int>(index % p.c);
  const int patch = static_cast<int>(index / p.c);
  const int col0 = patch % slab.patches_w * kOut - 1;
  const int row0 = patch / slab.patches_w % slab.patches_h * kOut - 1;
  const int image = slab.image0 + patch / slab.patches_w / slab.patches_h;

  ptx::grid_dependency_wait();
  float columns[kIn][kIn];
#pragma unroll
  for (int j = 0; j < kIn; ++j) {
    float d[kIn];
#pragma unroll
    for (int i = 0; i < kIn; ++i) {
      const int row = row0 + i, col = col0 + j;
      const bool inside = row >= 0 && row < p.h && col >= 0 && col < p.w;
      d[i] = inside ? x[((image * p.h + row) * p.w + col) * p.c + c] : 0.0f;
    }
    float t[kIn];
    transform_input(d, t);
#pragma unroll
    for (int i = 0; i < kIn; ++i) columns[i][j] = t[i];
  }
  ptx::grid_dependency_launch();
  const long long plane = static_cast<long long>(slab.patches()) * p.c;
#pragma unroll
  for (int i = 0; i < kIn; ++i) {
    float t[kIn];
    transform_input(columns[i], t);
#pragma unroll
    for (int j = 0; j < kIn; ++j) v[(i * kIn + j) * plane + index] = t[j];
  }
}

// m [36][patch][k] = v [36][patch][c] times u [36][k][c] transposed: a plain batched matrix product, as v05 does it.
template <class Tile, int kVec>
__global__ void __launch_bounds__(Tile::kThreads)
    conv3x3_fprop_v10_product_kernel(int patches, int channels, int outputs, const float* v, const float* u, float* m) {
  constexpr int kBlockM = Tile::kBlockM, kBlockN = Tile::kBlockN;
  constexpr int kPitchM = Tile::kPitchM, kPitchN = Tile::kPitchN;
  constexpr int kChunkC = kVec == 4 ? 16 : 8;
  constexpr int kLoadsPerRow = kChunkC / kVec;
  constexpr int kRowStep = Tile::kThreads / kLoadsPerRow;
  constexpr int kLoadsA = kBlockM / kRowStep;
  constexpr int kLoadsB = kBlockN / kRowStep;
  static_assert(kLoadsA * kRowStep == kBlockM && kLoadsB * kRowStep == kBlockN, "loads divide evenly");
  LADDER_SHARED(float4, as4, [2][kChunkC * kPitchM / 4]);
  LADDER_SHARED(float4, bs4, [2][kChunkC * kPitchN / 4]);

  const int blocks_n = ceil_div(outputs, kBlockN);
  const int blocks_m = ceil_div(patches, kBlockM);
  const int n0 = blockIdx.x % blocks_n * kBlockN;
  const int m0 = blockIdx.x / blocks_n % blocks_m * kBlockM;
  const int point = blockIdx.x / blocks_n / blocks_m;
  v += static_cast<long long>(point) * patches * channels;
  u += static_cast<long long>(point) * outputs * channels;
  m += static_cast<long long>(point) * patches * outputs;

  const int load_c = threadIdx.x % kLoadsPerRow * kVec;
  const int load_row = threadIdx.x / kLoadsPerRow;
  float a_next[kLoadsA][kVec];
  float b_next[kLoadsB][kVec];
  auto fetch = [&](int c0) {
    const int c = c0 + load_c;
#pragma unroll
    for (int i = 0; i < kLoadsA; ++i) {
      const int row = m0 + load_row + i * kRowStep;
      fetch_run(a_next[i], v + row * channels + c, row < patches && c < channels);
    }
#pragma unroll
    for (int i = 0; i < kLoadsB; ++i) {
      const int row = n0 + load_row + i * kRowStep;
      fetch_run(b_next[i], u + row * channels + c, row < outputs && c < channels);
    }
  };
  auto put = [&](int stage) {
    float* as = reinterpret_cast<float*>(as4[stage]);
    float* bs = reinterpret_cast<float*>(bs4[stage]);
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
#pragma unroll
      for (int i = 0; i < kLoadsA; ++i) as[(load_c + j) * kPitchM + load_row + i * kRowStep] = a_next[i][j];
#pragma unroll
      for (int i = 0; i < kLoadsB; ++i) bs[(load_c + j) * kPitchN + load_row + i * kRowStep] = b_next[i][j];
    }
  };

  float sum[Tile::kThreadM][Tile::kThreadN] = {};
  ptx::grid_dependency_wait();
  fetch(0);
  put(0);
  __syncthreads();
  int stage = 0;
  for (int c0 = 0; c0 < channels; c0 += kChunkC, stage ^= 1) {
    const bool more = c0 + kChunkC < channels;
    if (more) fetch(c0 + kChunkC);
    Tile::template multiply<kChunkC>(sum, reinterpret_cast<const float*>(as4[stage]),
                                     reinterpret_cast<const float*>(bs4[stage]));
    if (more) put(stage ^ 1);
    __syncthreads();
  }

  ptx::grid_dependency_launch();
#pragma unroll
  for (int i = 0; i < Tile::kThreadM; ++i) {
    const int row = m0 + Tile::row(i);
    if (row >= patches) continue;
#pragma unroll
    for (int j = 0; j < Tile::kThreadN; j += 4) {
      const int col = n0 + Tile::col(j);
      float* out = m + row * outputs + col;
      if (outputs % 4 == 0 && col < outputs) {
        *reinterpret_cast<float4*>(out) = {sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]};
      } else {
#pragma unroll
        for (int l = 0; l < 4; ++l) {
          if (col + l < outputs) out[l] = sum[i][j + l];
        }
      }
    }
  }
}

// y from m [36][patch][k]; a thread a patch and output channel, channels fastest.
__global__ void __launch_bounds__(kThreads)
    conv3x3_fprop_v10_output_kernel(Problem p, Slab slab, const float* m, const float* bias, float* y) {
  const long long index = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  const long long plane = static_cast<long long>(slab.patches()) * p.k;
  if (index >= plane) return;
  const int k = static_cast<int>(index % p.k);
  const int patch = static_cast<int>(index / p.k);
  const int col0 = patch % slab.patches_w * kOut;
  const int row0 = patch / slab.patches_w % slab.patches_h * kOut;
  const int image = slab.image0 + patch / slab.patches_w / slab.patches_h;

  ptx::grid_dependency_wait();
  float rows[kOut][kIn];
#pragma unroll
  for (int j = 0; j < kIn; ++j) {
    float column[kIn];
#pragma unroll
    for (int i = 0; i < kIn; ++i) column[i] = m[(i * kIn + j) * plane + index];
    float t[kOut];
    transform_output(column, t);
#pragma unroll
    for (int i = 0; i < kOut; ++i) rows[i][j] = t[i];
  }
  ptx::grid_dependency_launch();
  const float b = bias ? bias[k] : 0.0f;
#pragma unroll
  for (int i = 0; i < kOut; ++i) {
    float t[kOut];
    transform_output(rows[i], t);
#pragma unroll
    for (int j = 0; j < kOut; ++j) {
      const int row = row0 + i, col = col0 + j;
      if (row < p.h && col < p.w) y[((image * p.h + row) * p.w + col) * p.k + k] = t[j] + b;
    }
  }
}

template <class Tile>
unsigned num_blocks(int patches, const Problem& p) {
  return static_cast<unsigned>(kPoints) * ceil_div(patches, Tile::kBlockM) * ceil_div(p.k, Tile::kBlockN);
}

// Multiply-adds of the busiest SM in one slab's product: the last wave costs as much as a full one.
template <class Tile, int kBlocksPerSm>
double product_cost(const Problem& p, int patches) {
  const unsigned slots = backend::device().num_sms * kBlocksPerSm;
  const unsigned waves = (num_blocks<Tile>(patches, p) + slots - 1) / slots;
  return double(waves) * kBlocksPerSm * Tile::kBlockM * Tile::kBlockN * p.c;
}

using Large = FfmaTile<128, 64, 8, 8>;  // 161 registers: three blocks an SM
using Small = FfmaTile<64, 64, 8, 4>;   // 95 registers: five
double large_cost(const Problem& p, int patches) { return product_cost<Large, 3>(p, patches); }
double small_cost(const Problem& p, int patches) { return product_cost<Small, 5>(p, patches); }

// Returns the number of images in a slab that minimises the cost of products and launches, among the slabs whose v and
// m fit L2 together.
int images_per_slab(const Problem& p) {
  constexpr double kLaunchCost = 3 * 2e5;  // three launches of 1.5 us, in multiply-adds of an SM
  const double bytes_per_image = 4.0 * kPoints * patches_per_image(p) * (p.c + p.k);
  int best = 1;
  double least = 0;
  for (int images = 1; images <= p.n; ++images) {
    if (images > 1 && images * bytes_per_image > static_cast<double>(backend::device().l2_bytes)) break;
    const auto cost_of = [&](int count) {
      const int patches = count * patches_per_image(p);
      return std::min(large_cost(p, patches), small_cost(p, patches)) + kLaunchCost;
    };
    const double cost = p.n / images * cost_of(images) + (p.n % images ? cost_of(p.n % images) : 0.0);
    if (images == 1 || cost < least) {
      least = cost;
      best = images;
    }
  }
  return best;
}

std::size_t workspace_bytes(const Problem& p) {
  const std::size_t patches = static_cast<std::size_t>(images_per_slab(p)) * patches_per_image(p);
  return 4 * kPoints * (std::size_t(p.k) * p.c + patches * (p.c + p.k));
}

unsigned blocks_for(long long threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }

template <class Tile>
void launch_product(const Problem& p, int patches, const float* v, const float* u, float* m, Stream stream) {
  auto kernel = p.c % 4 == 0 ? conv3x3_fprop_v10_product_kernel<Tile, 4> : conv3x3_fprop_v10_product_kernel<Tile, 1>;
  ladder::launch(kernel, {.grid = num_blocks<Tile>(patches, p), .block = Tile::kThreads, .overlaps_previous = true},
                 stream, patches, p.c, p.k, v, u, m);
}

void launch(const Problem& p, const Fprop::Tensors& t, void* workspace, Stream stream) {
  const int slab_images = images_per_slab(p);
  const std::size_t slab_patches = static_cast<std::size_t>(slab_images) * patches_per_image(p);
  float* const u = static_cast<float*>(workspace);
  float* const v = u + std::size_t{kPoints} * p.k * p.c;
  float* const m = v + kPoints * slab_patches * p.c;
  const auto* x = static_cast<const float*>(t.x);
  auto* y = static_cast<float*>(t.y);

  ladder::launch(conv3x3_fprop_v10_filter_kernel,
                 {.grid = blocks_for(static_cast<long long>(p.k) * p.c), .block = kThreads, .overlaps_previous = true},
                 stream, p, static_cast<const float*>(t.w), u);
  for (int image = 0; image < p.n; image += slab_images) {
    const Slab slab{image, std::min(slab_images, p.n - image), ceil_div(p.h, kOut), ceil_div(p.w, kOut)};
    const int patches = slab.patches();
    ladder::launch(
        conv3x3_fprop_v10_input_kernel,
        {.grid = blocks_for(static_cast<long long>(patches) * p.c), .block = kThreads, .overlaps_previous = true},
        stream, p, slab, x, v);
    if (large_cost(p, patches) <= small_cost(p, patches)) {
      launch_product<Large>(p, patches, v, u, m, stream);
    } else {
      launch_product<Small>(p, patches, v, u, m, stream);
    }
    ladder::launch(
        conv3x3_fprop_v10_output_kernel,
        {.grid = blocks_for(static_cast<long long>(patches) * p.k), .block = kThreads, .overlaps_previous = true},
        stream, p, slab, m, t.bias, y);
  }
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Fprop,
               {.launch = ladder::conv3x3::launch,
                .dtypes = {ladder::Dtype::f32},
                .supports = ladder::conv3x3::bias_only,
                .workspace_bytes = ladder::conv3x3::workspace_bytes,
                .error_growth = 16,
                .exact = false,
                .least_arithmetic = 0.25,
                .needs = "a workspace; Winograd, so rounding errors several times a plain sum's"})

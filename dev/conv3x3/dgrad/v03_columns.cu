// Idea:   the other way round: first every product of a pixel of dy with every weight, as one matrix product with w as
//         it lies in memory; then each element of dx collects the nine that are its own (col2im).
// Parent: v02.
// Why:    it needs neither flipped weights nor a halo, and its product is a plain one, dy [pixels, k] times w [k, 9c].
//         Why not: the columns are nine times dx. At 64x64 with 64 channels 302 MB are written and read again, which
//         takes as long as the whole convolution's lower bound in fp32, and sixteen times its lower bound in bf16. Slabs
//         of images that stay in L2 soften it, at the price of two launches a slab.
// Needs:  a workspace for the columns of a slab.

#include <algorithm>

#include "core/device.h"
#include "dev/conv3x3/conv3x3.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kThreads = 256;
constexpr int kBlockM = 64;  // pixels
constexpr int kBlockN = 64;  // columns: (r, s, c)
constexpr int kBlockK = 16;
constexpr int kTile = 4;  // a thread's sums: 4 x 4

constexpr std::size_t kSlabBytes = std::size_t{32} << 20;  // of columns, about what the L2 keeps beside dy and w

int images_per_slab(const Problem& p) {
  const std::size_t image_bytes = std::size_t{9} * p.h * p.w * p.c * sizeof(float);
  return static_cast<int>(std::clamp<std::size_t>(kSlabBytes / image_bytes, 1, static_cast<std::size_t>(p.n)));
}

std::size_t columns_bytes(const Problem& p, int images) {
  return std::size_t{9} * images * p.h * p.w * p.c * sizeof(float);
}

// columns[m][n] = sum over k of dy[m][k] w[k][n], n counting (r, s, c).
__global__ void conv3x3_dgrad_v03_product_kernel(int pixels, int k, int columns_n, const float* dy, const float* w,
                                                 float* columns) {
  LADDER_SHARED(float, as, [kBlockK][kBlockM + 4]);
  LADDER_SHARED(float, bs, [kBlockK][kBlockN]);
  const int blocks_n = ceil_div(columns_n, kBlockN);
  const int n0 = blockIdx.x % blocks_n * kBlockN;
  const int m0 = blockIdx.x / blocks_n * kBlockM;
  const int tm = threadIdx.x / (kBlockN / kTile) * kTile;
  const int tn = threadIdx.x % (kBlockN / kTile) * kTile;

  ptx::grid_dependency_wait();
  float sum[kTile][kTile] = {};
  for (int k0 = 0; k0 < k; k0 += kBlockK) {
    for (int i = threadIdx.x; i < kBlockM * kBlockK; i += kThreads) {
      const int kk = i % kBlockK;
      const int m = i / kBlockK;
      as[kk][m] = m0 + m < pixels && k0 + kk < k ? dy[(m0 + m) * k + k0 + kk] : 0.0f;
    }
    for (int i = threadIdx.x; i < kBlockK * kBlockN; i += kThreads) {
      const int n = i % kBlockN;
      const int kk = i / kBlockN;
      bs[kk][n] = k0 + kk < k && n0 + n < columns_n ? w[(k0 + kk) * columns_n + n0 + n] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < kBlockK; ++kk) {
#pragma unroll
      for (int i = 0; i < kTile; ++i) {
#pragma unroll
        for (int j = 0; j < kTile; ++j) sum[i][j] += as[kk][tm + i] * bs[kk][tn + j];
      }
    }
    __syncthreads();
  }
  ptx::grid_dependency_launch();
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
#pragma unroll
    for (int j = 0; j < kTile; ++j) {
      if (m0 + tm + i < pixels && n0 + tn + j < columns_n) {
        columns[static_cast<long long>(m0 + tm + i) * columns_n + n0 + tn + j] = sum[i][j];
      }
    }
  }
}

// A thread an element of dx, in a fixed order of taps.
__global__ void conv3x3_dgrad_v03_collect_kernel(Problem p, int pixels, const float* columns, float* dx) {
  const long long index = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  if (index >= static_cast<long long>(pixels) * p.c) return;
  const int c = static_cast<int>(index % p.c);
  const int pixel = static_cast<int>(index / p.c);
  const int col = pixel % p.w;
  const int row = pixel / p.w % p.h;
  ptx::grid_dependency_wait();
  float sum = 0.0f;
  for (int rs = 0; rs < 9; ++rs) {
    const int dr = 1 - rs / 3;
    const int ds = 1 - rs % 3;
    const bool inside = row + dr >= 0 && row + dr < p.h && col + ds >= 0 && col + ds < p.w;
    if (inside) sum += columns[(static_cast<long long>(pixel + dr * p.w + ds) * 9 + rs) * p.c + c];
  }
  ptx::grid_dependency_launch();
  dx[index] = sum;
}

BoundLaunch bind(const Problem& p, const Dgrad::Tensors& t, void* workspace, int slab) {
  auto* columns = static_cast<float*>(workspace);
  const int columns_n = 9 * p.c;
  std::vector<BoundLaunch> launches;
  for (int image = 0; image < p.n; image += slab) {
    const int pixels = std::min(slab, p.n - image) * p.h * p.w;
    const float* dy = static_cast<const float*>(t.dy) + image * p.h * p.w * p.k;
    float* dx = static_cast<float*>(t.dx) + image * p.h * p.w * p.c;
    const auto tiles = static_cast<unsigned>(ceil_div(pixels, kBlockM) * ceil_div(columns_n, kBlockN));
    const auto blocks = static_cast<unsigned>((static_cast<long long>(pixels) * p.c + kThreads - 1) / kThreads);
    launches.push_back(bind_launch(conv3x3_dgrad_v03_product_kernel,
                                   {.grid = tiles, .block = kThreads, .overlaps_previous = true}, pixels, p.k,
                                   columns_n, dy, static_cast<const float*>(t.w), columns));
    launches.push_back(bind_launch(conv3x3_dgrad_v03_collect_kernel,
                                   {.grid = blocks, .block = kThreads, .overlaps_previous = true}, p, pixels, columns,
                                   dx));
  }
  return in_order(std::move(launches));
}

KernelPlan<Dgrad> slab_plan(const Problem& p, const char* name, int slab) {
  return {.name = name,
          .workspace_bytes = columns_bytes(p, slab),
          .bind = [p, slab](const Dgrad::Tensors& t, void* workspace) { return bind(p, t, workspace, slab); }};
}

std::vector<KernelPlan<Dgrad>> plans(const Problem& p) {
  return {slab_plan(p, "slabs that fit the L2", images_per_slab(p)), slab_plan(p, "slabs of one image", 1)};
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Dgrad, {.plans = ladder::conv3x3::plans,
                                        .plan_names = {"slabs that fit the L2", "slabs of one image"},
                                        .dtypes = {ladder::Dtype::f32},
                                        .needs = "a workspace for the columns of some images"})

// Idea:   a block stages tiles of 32 rows of dy and x in shared memory for 32 x 32 elements of dw.
// Parent: v01.
// Why:    v01 fetches two operands for every multiply-add; here each value fetched serves 32 outputs. Limiter left: a layer
//         of 64 x 192 weights is twelve blocks, each of which walks all 131072 rows.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/gemm/gemm.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::gemm {
namespace {

constexpr int kTile = 32;  // rows, columns and terms of a step
constexpr int kThreads = 256;
constexpr int kRowStep = kThreads / kTile;
constexpr int kRows = kTile / kRowStep;  // of sums a thread

__global__ void __launch_bounds__(kThreads)
    gemm_wgrad_v02_kernel(Problem p, const float* x, const float* dy, float* dw, float* dbias) {
  LADDER_SHARED(float, dys, [kTile][kTile]);  // [m][n]
  LADDER_SHARED(float, xs, [kTile][kTile]);   // [m][k]
  const int blocks_k = ceil_div(p.k, kTile);
  const int k0 = blockIdx.x % blocks_k * kTile;
  const int n0 = blockIdx.x / blocks_k * kTile;
  const int tx = threadIdx.x % kTile;
  const int ty = threadIdx.x / kTile;

  float sum[kRows] = {};
  float bias_sum = 0;  // of column n0 + tx, in the first warp of the blocks that own dw's first columns
  ptx::grid_dependency_wait();
  for (int m0 = 0; m0 < p.m; m0 += kTile) {
    for (int row = ty; row < kTile; row += kRowStep) {
      const bool inside = m0 + row < p.m;
      dys[row][tx] = inside && n0 + tx < p.n ? dy[static_cast<long long>(m0 + row) * p.n + n0 + tx] : 0.0f;
      xs[row][tx] = inside && k0 + tx < p.k ? x[static_cast<long long>(m0 + row) * p.k + k0 + tx] : 0.0f;
    }
    __syncthreads();
    // A step's terms are added up first, then to the total: a single sum of 131072 terms would lose three digits.
    float part[kRows] = {};
    for (int m = 0; m < kTile; ++m) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) part[i] += dys[m][ty + i * kRowStep] * xs[m][tx];
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) sum[i] += part[i];
    if (dbias && k0 == 0 && ty == 0) {
      float column = 0;
      for (int m = 0; m < kTile; ++m) column += dys[m][tx];
      bias_sum += column;
    }
    __syncthreads();
  }

  ptx::grid_dependency_launch();
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int n = n0 + ty + i * kRowStep;
    if (n < p.n && k0 + tx < p.k) dw[static_cast<long long>(n) * p.k + k0 + tx] = sum[i];
  }
  if (dbias && k0 == 0 && ty == 0 && n0 + tx < p.n) dbias[n0 + tx] = bias_sum;
}

void launch(const Problem& p, const Wgrad::Tensors& t, void*, Stream stream) {
  const unsigned blocks = static_cast<unsigned>(ceil_div(p.n, kTile)) * ceil_div(p.k, kTile);
  ladder::launch(gemm_wgrad_v02_kernel, {.grid = blocks, .block = kThreads, .overlaps_previous = true}, stream, p,
                 static_cast<const float*>(t.x), static_cast<const float*>(t.dy), static_cast<float*>(t.dw), t.dbias);
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Wgrad,
               {.launch = ladder::gemm::launch, .dtypes = {ladder::Dtype::f32}, .supports = ladder::gemm::one_x_only})

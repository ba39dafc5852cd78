// Idea:   a block stages 32 x 32 tiles of x and w in shared memory; each element is fetched once for 32 uses.
// Parent: v01.
// Why:    v01 fetches two operands through L1 for every multiply-add, those of w from 32 lines at a time. Here a warp reads
//         whole lines and each value serves 32 outputs. Limiter left: two shared-memory loads for a multiply-add, but that
//         four rows a thread share those of w.
// Needs:  nothing.

#include "dev/gemm/epilogue.h"

namespace ladder::gemm {
namespace {

constexpr int kTile = 32;  // rows, columns and terms of a step
constexpr int kThreads = 256;
constexpr int kRowStep = kThreads / kTile;
constexpr int kRows = kTile / kRowStep;  // of sums a thread

__global__ void __launch_bounds__(kThreads)
    gemm_fprop_v02_kernel(Problem p, const float* x, const float* w, Epilogue<float> epilogue, float* y) {
  // One element of padding: a warp's 32 rows of w start in 32 banks.
  LADDER_SHARED(float, xs, [kTile][kTile + 1]);
  LADDER_SHARED(float, ws, [kTile][kTile + 1]);
  const int blocks_n = ceil_div(p.n, kTile);
  const int n0 = blockIdx.x % blocks_n * kTile;
  const int m0 = blockIdx.x / blocks_n * kTile;
  const int tx = threadIdx.x % kTile;
  const int ty = threadIdx.x / kTile;

  float sum[kRows] = {};
  for (int k0 = 0; k0 < p.k; k0 += kTile) {
    for (int row = ty; row < kTile; row += kRowStep) {
      const bool inside = k0 + tx < p.k;
      xs[row][tx] = inside && m0 + row < p.m ? x[static_cast<long long>(m0 + row) * p.k + k0 + tx] : 0.0f;
      ws[row][tx] = inside && n0 + row < p.n ? w[static_cast<long long>(n0 + row) * p.k + k0 + tx] : 0.0f;
    }
    __syncthreads();
    for (int k = 0; k < kTile; ++k) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) sum[i] += xs[ty + i * kRowStep][k] * ws[tx][k];
    }
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int m = m0 + ty + i * kRowStep;
    const long long index = static_cast<long long>(m) * p.n + n0 + tx;
    if (m < p.m && n0 + tx < p.n) y[index] = epilogue(sum[i], n0 + tx, index);
  }
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  const unsigned blocks = static_cast<unsigned>(ceil_div(p.m, kTile)) * ceil_div(p.n, kTile);
  ladder::launch(gemm_fprop_v02_kernel, {.grid = blocks, .block = kThreads}, stream, p, static_cast<const float*>(t.x),
                 static_cast<const float*>(t.w), epilogue_of<float, float>(p, t), static_cast<float*>(t.y));
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Fprop,
               {.launch = ladder::gemm::launch, .dtypes = {ladder::Dtype::f32}, .supports = ladder::gemm::one_x_only})

// Idea:   a block stages 32 x 32 tiles of dy and w in shared memory; each element is fetched once for 32 uses.
// Parent: v01.
// Why:    v01 fetches two operands through L1 for every multiply-add. Here each value fetched serves 32 outputs. Limiter
//         left: two shared-memory loads for a multiply-add, but that four rows a thread share those of w.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/gemm/concat_operand.h"

namespace ladder::gemm {
namespace {

constexpr int kTile = 32;  // rows, columns and terms of a step
constexpr int kThreads = 256;
constexpr int kRowStep = kThreads / kTile;
constexpr int kRows = kTile / kRowStep;  // of sums a thread

__global__ void __launch_bounds__(kThreads)
    gemm_dgrad_v02_kernel(Problem p, const float* dy, const float* w, const float* r, ConcatOperand<float> dx) {
  LADDER_SHARED(float, dys, [kTile][kTile]);  // [m][n]: a warp reads one element, to all lanes
  LADDER_SHARED(float, ws, [kTile][kTile]);   // [n][k]: a warp reads one row
  const int blocks_k = ceil_div(p.k, kTile);
  const int k0 = blockIdx.x % blocks_k * kTile;
  const int m0 = blockIdx.x / blocks_k * kTile;
  const int tx = threadIdx.x % kTile;
  const int ty = threadIdx.x / kTile;

  float sum[kRows] = {};
  for (int n0 = 0; n0 < p.n; n0 += kTile) {
    for (int row = ty; row < kTile; row += kRowStep) {
      dys[row][tx] = m0 + row < p.m && n0 + tx < p.n ? dy[static_cast<long long>(m0 + row) * p.n + n0 + tx] : 0.0f;
      ws[row][tx] = n0 + row < p.n && k0 + tx < p.k ? w[static_cast<long long>(n0 + row) * p.k + k0 + tx] : 0.0f;
    }
    __syncthreads();
    for (int n = 0; n < kTile; ++n) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) sum[i] += dys[ty + i * kRowStep][n] * ws[n][tx];
    }
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int m = m0 + ty + i * kRowStep;
    const long long index = static_cast<long long>(m) * p.k + k0 + tx;
    if (m < p.m && k0 + tx < p.k) *element_at(dx, m, k0 + tx, p.k) = r ? sum[i] + r[index] : sum[i];
  }
}

void launch(const Problem& p, const Dgrad::Tensors& t, void*, Stream stream) {
  const unsigned blocks = static_cast<unsigned>(ceil_div(p.m, kTile)) * ceil_div(p.k, kTile);
  ladder::launch(gemm_dgrad_v02_kernel, {.grid = blocks, .block = kThreads}, stream, p, static_cast<const float*>(t.dy),
                 static_cast<const float*>(t.w), static_cast<const float*>(t.r), output_of<float>(p, t));
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Dgrad, {.launch = ladder::gemm::launch, .dtypes = {ladder::Dtype::f32}})

// The kernel that ends dgamma and dbeta: versions of the backward pass launch it after their own.
#include "dev/layernorm/parameter_gradients.h"

#include "dev/ptx/grid_dependency.h"

namespace ladder::layernorm {
namespace {

constexpr int kColumns = 32;     // of a block
constexpr int kRowThreads = 16;  // that share a column: each adds every sixteenth row

__global__ void __launch_bounds__(kColumns* kRowThreads)
    layernorm_backward_parameters_kernel(const float2* sums, int rows, int n, float* dgamma, float* dbeta) {
  LADDER_SHARED(float2, partial, [kRowThreads][kColumns]);
  const int lane = static_cast<int>(threadIdx.x) % kColumns;
  const int first_row = static_cast<int>(threadIdx.x) / kColumns;
  const int column = static_cast<int>(blockIdx.x) * kColumns + lane;
  ptx::grid_dependency_wait();
  float2 sum{0, 0};
  if (column < n) {
#pragma unroll 4
    for (int row = first_row; row < rows; row += kRowThreads) {
      const float2 v = sums[static_cast<std::int64_t>(row) * n + column];
      sum.x += v.x, sum.y += v.y;
    }
  }
  ptx::grid_dependency_launch();
  partial[first_row][lane] = sum;
  __syncthreads();
  if (first_row > 0 || column >= n) return;
#pragma unroll
  for (int i = 1; i < kRowThreads; ++i) sum.x += partial[i][lane].x, sum.y += partial[i][lane].y;
  dbeta[column] = sum.x;
  dgamma[column] = sum.y;
}

}  // namespace

void launch_parameter_sums(const Problem& p, const float2* sums, int rows, const Backward::Tensors& t, Stream stream) {
  ladder::launch(layernorm_backward_parameters_kernel,
                 {.grid = static_cast<unsigned>(ceil_div(p.n, kColumns)),
                  .block = kColumns * kRowThreads,
                  .overlaps_previous = true},
                 stream, sums, rows, p.n, t.dgamma, t.dbeta);
}

}  // namespace ladder::layernorm

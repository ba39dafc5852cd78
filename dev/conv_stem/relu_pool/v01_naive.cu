// Idea:   one thread computes one pooled element, straight from the formula: nine convolutions, of which it keeps the
//         largest.
// Parent: none.
// Why:    it is the definition, in the fewest lines; the convolution's output never lies in memory. Limiter: fprop's v01's,
//         a cache line a multiply-add, and windows overlap, so every sum is computed 2.25 times.
// Needs:  nothing.

#include "dev/conv_stem/conv_stem.h"
#include "dev/conv_stem/one_output.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/maximum.h"

namespace ladder::conv_stem {
namespace {

constexpr int kThreads = 256;

__global__ void conv_stem_relu_pool_v01_kernel(Problem p, const float* x, const float* w, const float* bias, float* y) {
  ptx::grid_dependency_wait();
  const long long index = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  if (index < static_cast<long long>(p.n) * p.pool_h() * p.pool_w() * p.k) {
    const int k = static_cast<int>(index % p.k);
    const int pixel = static_cast<int>(index / p.k);
    const int col = pixel % p.pool_w();
    const int row = pixel / p.pool_w() % p.pool_h();
    float largest = 0;
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) {
        const int n = pixel / p.pool_w() / p.pool_h();
        largest = ptx::maximum(largest, one_output(p, x, w, bias, n, 2 * row + i, 2 * col + j, k));
      }
    }
    y[index] = largest;
  }
  ptx::grid_dependency_launch();
}

void launch(const Problem& p, const ReluPool::Tensors& t, void*, Stream stream) {
  const long long outputs = static_cast<long long>(p.n) * p.pool_h() * p.pool_w() * p.k;
  const auto blocks = static_cast<unsigned>((outputs + kThreads - 1) / kThreads);
  ladder::launch(conv_stem_relu_pool_v01_kernel, {.grid = blocks, .block = kThreads, .overlaps_previous = true}, stream,
                 p, t.x, t.w, t.bias, t.y);
}

}  // namespace
}  // namespace ladder::conv_stem

LADDER_VERSION(ladder::conv_stem::ReluPool, {.launch = ladder::conv_stem::launch, .dtypes = {ladder::Dtype::f32}})

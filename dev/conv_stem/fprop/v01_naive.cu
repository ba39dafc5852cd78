// Idea:   one thread computes one output element, straight from the formula: the published round 0.
// Parent: none.
// Why:    it is the definition, in the fewest lines. Limiter: neighbouring threads hold neighbouring output channels, so
//         each of a warp's 32 weight loads touches a row of its own, r*r*c floats apart: 32 cache lines for 32
//         multiply-adds.
// Needs:  nothing.

#include "dev/conv_stem/conv_stem.h"
#include "dev/conv_stem/one_output.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv_stem {
namespace {

constexpr int kThreads = 256;

__global__ void conv_stem_fprop_v01_kernel(Problem p, const float* x, const float* w, const float* bias, float* y) {
  ptx::grid_dependency_wait();
  const long long index = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  if (index < static_cast<long long>(p.n) * p.out_h() * p.out_w() * p.k) {
    const int k = static_cast<int>(index % p.k);
    const int pixel = static_cast<int>(index / p.k);
    const int col = pixel % p.out_w();
    const int row = pixel / p.out_w() % p.out_h();
    y[index] = one_output(p, x, w, bias, pixel / p.out_w() / p.out_h(), row, col, k);
  }
  ptx::grid_dependency_launch();
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  const long long outputs = static_cast<long long>(p.n) * p.out_h() * p.out_w() * p.k;
  const auto blocks = static_cast<unsigned>((outputs + kThreads - 1) / kThreads);
  ladder::launch(conv_stem_fprop_v01_kernel, {.grid = blocks, .block = kThreads, .overlaps_previous = true}, stream, p,
                 t.x, t.w, t.bias, t.y);
}

}  // namespace
}  // namespace ladder::conv_stem

LADDER_VERSION(ladder::conv_stem::Fprop, {.launch = ladder::conv_stem::launch, .dtypes = {ladder::Dtype::f32}})

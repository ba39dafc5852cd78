// Idea:   one thread computes one output element, straight from the formula.
// Parent: none.
// Why:    it is the definition, in the fewest lines. Limiter: neighbouring threads have neighbouring output channels, whose
//         weights are terms*c elements apart, so that each load of a warp touches 32 cache lines; and a thread adds all
//         terms*c products one after the other.
// Needs:  nothing.

#include "dev/conv1d/one_output.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv1d {
namespace {

constexpr int kThreads = 64;  // few, so that the few outputs of a short sequence spread over all SMs

template <class T>
__global__ void conv1d_fprop_v01_kernel(Problem p, const T* x, const T* w, const float* bias, const T* residual, T* y) {
  ptx::grid_dependency_wait();
  const int index = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (index < p.n * p.out_l() * p.k) {
    const int k = index % p.k;
    const int o = index / p.k % p.out_l();
    float sum = one_output(p, x, x, p.c, w, index / p.k / p.out_l(), o, k);
    if (bias) sum += bias[k];
    if (residual) sum += to_float(residual[index]);
    y[index] = from_float<T>(sum);
  }
  ptx::grid_dependency_launch();
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(p.n * p.out_l() * p.k, kThreads));
  with_storage_type(p.dtype, [&]<class T>(T) {
    ladder::launch(conv1d_fprop_v01_kernel<T>, {.grid = blocks, .block = kThreads, .overlaps_previous = true}, stream,
                   p, static_cast<const T*>(t.x), static_cast<const T*>(t.w), t.bias, static_cast<const T*>(t.residual),
                   static_cast<T*>(t.y));
  });
}

}  // namespace
}  // namespace ladder::conv1d

LADDER_VERSION(ladder::conv1d::Fprop, {.launch = ladder::conv1d::launch,
                                       .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

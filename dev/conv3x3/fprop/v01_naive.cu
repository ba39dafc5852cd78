// Idea:   one thread computes one output element, straight from the formula.
// Parent: none.
// Why:    it is the definition, in the fewest lines; every other version is measured against it and may be debugged
//         against it. Limiter: neighbouring threads hold neighbouring output channels, so each of a warp's 32 weight
//         loads touches a row of its own, 9c elements apart: 32 cache lines for 32 multiply-adds.
// Needs:  nothing.

#include "dev/common/parameter_type.h"
#include "dev/conv3x3/conv3x3.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kThreads = 256;

template <class T, class P>
__global__ void conv3x3_fprop_v01_kernel(Problem p, const T* x, const T* w, const P* bias, const float* e, const T* r,
                                         T* y) {
  const long long index = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  if (index >= static_cast<long long>(p.n) * p.h * p.w * p.k) return;
  const int k = static_cast<int>(index % p.k);
  const int pixel = static_cast<int>(index / p.k);
  const int col = pixel % p.w;
  const int row = pixel / p.w % p.h;

  float sum = bias ? to_float(bias[k]) : 0.0f;
  if (e) sum += e[pixel / p.w / p.h * p.embedding + p.first + k];
  if (r) sum += to_float(r[index]);
  for (int r = 0; r < 3; ++r) {
    if (row + r - 1 < 0 || row + r - 1 >= p.h) continue;
    for (int s = 0; s < 3; ++s) {
      if (col + s - 1 < 0 || col + s - 1 >= p.w) continue;
      const T* x_tap = x + (pixel + (r - 1) * p.w + s - 1) * p.c;
      const T* w_tap = w + ((k * 3 + r) * 3 + s) * p.c;
      for (int c = 0; c < p.c; ++c) sum += to_float(x_tap[c]) * to_float(w_tap[c]);
    }
  }
  y[index] = from_float<T>(sum);
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  const auto blocks = static_cast<unsigned>((p.pixels() * p.k + kThreads - 1) / kThreads);
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    with_parameter_type<T>(p.params16, [&](auto parameter) {
      using P = decltype(parameter);
      ladder::launch(conv3x3_fprop_v01_kernel<T, P>, {.grid = blocks, .block = kThreads}, stream, p,
                     static_cast<const T*>(t.x), static_cast<const T*>(t.w), typed<P>(t.bias), t.e,
                     static_cast<const T*>(t.r), static_cast<T*>(t.y));
    });
  });
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Fprop, {.launch = ladder::conv3x3::launch,
                                        .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

// Idea:   one thread computes one element of dx, straight from the formula.
// Parent: none.
// Why:    it is the definition; every other version may be debugged against it. Each tap is summed apart, for a chain of
//         9k fp32 additions loses more than the baseline's plan. Limiter: two loads a multiply-add. Unlike fprop's, its
//         weight loads run along c, on which neighbouring threads sit.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/conv3x3/conv3x3.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void conv3x3_dgrad_v01_kernel(Problem p, const T* dy, const T* w, T* dx) {
  const long long index = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  if (index >= static_cast<long long>(p.n) * p.h * p.w * p.c) return;
  const int c = static_cast<int>(index % p.c);
  const int pixel = static_cast<int>(index / p.c);
  const int col = pixel % p.w;
  const int row = pixel / p.w % p.h;

  float sum = 0.0f;
  for (int r = 0; r < 3; ++r) {
    if (row + 1 - r < 0 || row + 1 - r >= p.h) continue;
    for (int s = 0; s < 3; ++s) {
      if (col + 1 - s < 0 || col + 1 - s >= p.w) continue;
      const T* dy_tap = dy + (pixel + (1 - r) * p.w + 1 - s) * p.k;
      const T* w_tap = w + (r * 3 + s) * p.c + c;
      float tap_sum = 0.0f;
      for (int k = 0; k < p.k; ++k) tap_sum += to_float(dy_tap[k]) * to_float(w_tap[9 * k * p.c]);
      sum += tap_sum;
    }
  }
  dx[index] = from_float<T>(sum);
}

void launch(const Problem& p, const Dgrad::Tensors& t, void*, Stream stream) {
  const auto blocks = static_cast<unsigned>((p.pixels() * p.c + kThreads - 1) / kThreads);
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    ladder::launch(conv3x3_dgrad_v01_kernel<T>, {.grid = blocks, .block = kThreads}, stream, p,
                   static_cast<const T*>(t.dy), static_cast<const T*>(t.w), static_cast<T*>(t.dx));
  });
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Dgrad, {.launch = ladder::conv3x3::launch,
                                        .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

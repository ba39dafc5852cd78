// Idea:   one thread computes one element of dw (or of dbias), straight from the formula, over all pixels.
// Parent: none.
// Why:    it is the definition, in the fewest lines. Sums of a row, an image and the batch are kept apart, for a single
//         fp32 sum of 131072 terms would lose three digits. Limiter: 9ck threads are all the parallelism there is, and
//         each walks every pixel, waiting for two loads a multiply-add.
// Needs:  nothing.

#include "dev/common/parameter_type.h"
#include "dev/conv3x3/conv3x3.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kThreads = 64;  // few threads in all: small blocks spread them over more SMs

template <class T, class P>
__global__ void conv3x3_wgrad_v01_kernel(Problem p, const T* x, const T* dy, T* dw, P* dbias) {
  const int index = blockIdx.x * kThreads + threadIdx.x;
  const int weights = 9 * p.c * p.k;
  if (index >= weights + (dbias ? p.k : 0)) return;
  // dbias is a tenth tap: its "x" is one, at the pixel itself.
  const bool is_bias = index >= weights;
  const int k = is_bias ? index - weights : index / (9 * p.c);
  const int r = is_bias ? 1 : index / (3 * p.c) % 3;
  const int s = is_bias ? 1 : index / p.c % 3;
  const int c = index % p.c;

  float sum = 0;
  for (int image = 0; image < p.n; ++image) {
    float image_sum = 0;
    for (int row = max(0, 1 - r); row < min(p.h, p.h + 1 - r); ++row) {
      float row_sum = 0;
      for (int col = max(0, 1 - s); col < min(p.w, p.w + 1 - s); ++col) {
        const int pixel = (image * p.h + row) * p.w + col;
        const float gradient = to_float(dy[pixel * p.k + k]);
        row_sum += is_bias ? gradient : gradient * to_float(x[(pixel + (r - 1) * p.w + s - 1) * p.c + c]);
      }
      image_sum += row_sum;
    }
    sum += image_sum;
  }
  if (is_bias) {
    dbias[k] = from_float<P>(sum);
  } else {
    dw[index] = from_float<T>(sum);
  }
}

void launch(const Problem& p, const Wgrad::Tensors& t, void*, Stream stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(9 * p.c * p.k + p.k, kThreads));
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    with_parameter_type<T>(p.params16, [&](auto parameter) {
      using P = decltype(parameter);
      ladder::launch(conv3x3_wgrad_v01_kernel<T, P>, {.grid = blocks, .block = kThreads}, stream, p,
                     static_cast<const T*>(t.x), static_cast<const T*>(t.dy), static_cast<T*>(t.dw), typed<P>(t.dbias));
    });
  });
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Wgrad, {.launch = ladder::conv3x3::launch,
                                        .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

// Idea:   one thread computes one element of one layer's dw (or dbias), straight from the formula, over all pixels.
// Parent: none.
// Why:    it is the definition, in the fewest lines: wgrad's v01, with the layers side by side in one grid. Limiter: each
//         thread walks every pixel, waiting for two loads a multiply-add.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/conv3x3/conv3x3.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kThreads = 64;

template <class T>
__global__ void conv3x3_wgrad_batch_v01_kernel(Problem p, WgradBatch::Tensors t) {
  ptx::grid_dependency_wait();
  const int index = blockIdx.x * kThreads + threadIdx.x;
  const int weights = 9 * p.c * p.k;
  if (index >= weights + (p.bias ? p.k : 0)) return;
  const int layer = blockIdx.y;
  const T* const x = static_cast<const T*>(t.x[layer]);
  const T* const dy = static_cast<const T*>(t.dy[layer]);
  // dbias is a tenth tap: its "x" is one, at the pixel itself.
  const bool is_bias = index >= weights;
  const int k = is_bias ? index - weights : index / (9 * p.c);
  const int r = is_bias ? 1 : index / (3 * p.c) % 3;
  const int s = is_bias ? 1 : index / p.c % 3;
  const int c = index % p.c;

  float sum = 0;  // of images, each of rows: a single fp32 sum of 131072 terms would lose three digits
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
    t.dbias[layer][k] = sum;
  } else {
    static_cast<T*>(t.dw[layer])[index] = from_float<T>(sum);
  }
}

void launch(const Problem& p, const WgradBatch::Tensors& t, void*, Stream stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div(9 * p.c * p.k + p.k, kThreads)), static_cast<unsigned>(p.batch));
  with_storage_type(p.dtype, [&](auto element) {
    ladder::launch(conv3x3_wgrad_batch_v01_kernel<decltype(element)>,
                   {.grid = grid, .block = kThreads, .overlaps_previous = true}, stream, p, t);
  });
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::WgradBatch, {.launch = ladder::conv3x3::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

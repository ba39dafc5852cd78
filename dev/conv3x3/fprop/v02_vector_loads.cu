// Idea:   a warp covers 4 pixels x 8 output channels, and every load fetches four channels (16 bytes).
// Parent: v01.
// Why:    v01's warp touches 32 weight rows at once. Here a load touches 4 pixel rows or 8 weight rows, the lanes that
//         share a row share its cache line, and one instruction brings operands for four multiply-adds. Limiter left:
//         each operand still comes through L1 for every use; two loads feed four multiply-adds.
// Needs:  16-byte loads where c is a multiple of 4, else the same kernel with single elements.

#include "core/device.h"
#include "dev/conv3x3/conv3x3.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kThreads = 256;
constexpr int kLanesK = 8;  // 8 x 4 bytes of output: a full 32-byte sector a pixel
constexpr int kLanesPixel = 32 / kLanesK;
constexpr int kBlockPixels = kLanesPixel * (kThreads / 32);

template <int kVec>
__global__ void conv3x3_fprop_v02_kernel(Problem p, const float* x, const float* w, const float* bias, float* y) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int blocks_k = ceil_div(p.k, kLanesK);
  const int k = blockIdx.x % blocks_k * kLanesK + lane % kLanesK;
  const int pixel = blockIdx.x / blocks_k * kBlockPixels + warp * kLanesPixel + lane / kLanesK;
  if (k >= p.k || pixel >= p.n * p.h * p.w) return;
  const int col = pixel % p.w;
  const int row = pixel / p.w % p.h;

  float sum = bias ? bias[k] : 0.0f;
  for (int r = 0; r < 3; ++r) {
    if (row + r - 1 < 0 || row + r - 1 >= p.h) continue;
    for (int s = 0; s < 3; ++s) {
      if (col + s - 1 < 0 || col + s - 1 >= p.w) continue;
      const float* x_tap = x + (pixel + (r - 1) * p.w + s - 1) * p.c;
      const float* w_tap = w + ((k * 3 + r) * 3 + s) * p.c;
      for (int c = 0; c < p.c; c += kVec) {
        if constexpr (kVec == 4) {
          const float4 a = *reinterpret_cast<const float4*>(x_tap + c);
          const float4 b = *reinterpret_cast<const float4*>(w_tap + c);
          sum += a.x * b.x;
          sum += a.y * b.y;
          sum += a.z * b.z;
          sum += a.w * b.w;
        } else {
          sum += x_tap[c] * w_tap[c];
        }
      }
    }
  }
  y[pixel * p.k + k] = sum;
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  const auto pixels = static_cast<int>(p.pixels());
  const unsigned blocks = static_cast<unsigned>(ceil_div(pixels, kBlockPixels)) * ceil_div(p.k, kLanesK);
  auto kernel = p.c % 4 == 0 ? conv3x3_fprop_v02_kernel<4> : conv3x3_fprop_v02_kernel<1>;
  ladder::launch(kernel, {.grid = blocks, .block = kThreads}, stream, p, static_cast<const float*>(t.x),
                 static_cast<const float*>(t.w), t.bias, static_cast<float*>(t.y));
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Fprop, {.launch = ladder::conv3x3::launch,
                                        .dtypes = {ladder::Dtype::f32},
                                        .supports = ladder::conv3x3::bias_only})

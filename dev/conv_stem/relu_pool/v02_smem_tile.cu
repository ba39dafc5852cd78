// Idea:   the convolution of a tile of 9 x 13 pixels in plain fp32, 8 x 12 sums a thread, then pooled from shared memory to
//         4 x 6: the convolution's output is never in global memory.
// Parent: v01.
// Why:    v01 computes each sum 2.25 times, from two loads a multiply-add. Here it is 20 loads of 16 bytes for 384, and a
//         tile computes anew only the row and the column that it shares with its neighbours. Limiter left: the FMA pipe,
//         on half as many products again as the convolution has, tiles' edges included.
// Needs:  sm_80; c3 r11 stride4 pad2; k a multiple of 4.

#include <algorithm>

#include "dev/conv_stem/ffma_window.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/maximum.h"

namespace ladder::conv_stem {
namespace {

constexpr int kPoolRows = 4;
constexpr int kPoolCols = 6;
constexpr int kRows = 2 * kPoolRows + 1;
constexpr int kCols = 2 * kPoolCols + 1;
using Window = FfmaWindow<kRows, kCols>;
[[maybe_unused]] constexpr int kBlocksPerSm = 3;
constexpr int kSumPitch = kFfmaChannels + 4;  // floats: 16-byte stores to four neighbouring pixels meet no bank twice
constexpr int kSmemFloats = std::max(Window::kStages * Window::kStageFloats, kFfmaPixels* kSumPitch);

__global__ void __launch_bounds__(kFfmaThreads, kBlocksPerSm)
    conv_stem_relu_pool_v02_kernel(Problem p, const float* x, const float* w, const float* bias, float* y) {
  LADDER_DYN_SMEM(dynamic_smem);
  auto* const smem = reinterpret_cast<float*>(dynamic_smem);
  const int tiles_w = ceil_div(p.pool_w(), kPoolCols);
  const int tiles_h = ceil_div(p.pool_h(), kPoolRows);
  const int col0 = blockIdx.x % tiles_w * kPoolCols;
  const int row0 = blockIdx.x / tiles_w % tiles_h * kPoolRows;
  const int image = blockIdx.x / tiles_w / tiles_h;
  const int channel0 = blockIdx.y * kFfmaChannels;

  ptx::grid_dependency_wait();
  float sum[kThreadPixels][kThreadChannels] = {};
  Window::convolve(p, x, w, image, 2 * row0, 2 * col0, channel0, smem, sum);
  ptx::grid_dependency_launch();

  // The stages make way for the sums, [pixel][channel].
#pragma unroll
  for (int i = 0; i < kThreadPixels; ++i) {
#pragma unroll
    for (int run = 0; run < kThreadChannels / 4; ++run) {
      const float* const four = sum[i] + 4 * run;
      float* const to = smem + thread_pixel(i) * kSumPitch + thread_channel(run);
      *reinterpret_cast<float4*>(to) = {four[0], four[1], four[2], four[3]};
    }
  }
  __syncthreads();
  constexpr int kRuns = kFfmaChannels / 4;
  for (int run_idx = threadIdx.x; run_idx < kPoolRows * kPoolCols * kRuns; run_idx += kFfmaThreads) {
    const int channel = channel0 + run_idx % kRuns * 4;
    const int row = run_idx / kRuns / kPoolCols;
    const int col = run_idx / kRuns % kPoolCols;
    if (channel >= p.k || row0 + row >= p.pool_h() || col0 + col >= p.pool_w()) continue;
    float4 largest{-INFINITY, -INFINITY, -INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < 9; ++i) {
      const int pixel = (2 * row + i / 3) * kCols + 2 * col + i % 3;
      const float4 v = *reinterpret_cast<const float4*>(smem + pixel * kSumPitch + run_idx % kRuns * 4);
      largest = {ptx::maximum(largest.x, v.x), ptx::maximum(largest.y, v.y), ptx::maximum(largest.z, v.z),
                 ptx::maximum(largest.w, v.w)};
    }
    // Rounding is monotone: a bias may be added after the maximum.
    const float4 b = four_biases(bias, channel);
    const int pixel = (image * p.pool_h() + row0 + row) * p.pool_w() + col0 + col;
    *reinterpret_cast<float4*>(y + static_cast<long long>(pixel) * p.k + channel) = {
        ptx::maximum(largest.x + b.x, 0.0f), ptx::maximum(largest.y + b.y, 0.0f), ptx::maximum(largest.z + b.z, 0.0f),
        ptx::maximum(largest.w + b.w, 0.0f)};
  }
}

void launch(const Problem& p, const ReluPool::Tensors& t, void*, Stream stream) {
  const auto tiles = static_cast<unsigned>(p.n * ceil_div(p.pool_h(), kPoolRows) * ceil_div(p.pool_w(), kPoolCols));
  ladder::launch(conv_stem_relu_pool_v02_kernel,
                 {.grid = dim3(tiles, static_cast<unsigned>(ceil_div(p.k, kFfmaChannels))),
                  .block = kFfmaThreads,
                  .dynamic_smem = kSmemFloats * sizeof(float),
                  .overlaps_previous = true},
                 stream, p, t.x, t.w, t.bias, t.y);
}

}  // namespace
}  // namespace ladder::conv_stem

LADDER_VERSION(ladder::conv_stem::ReluPool, {.launch = ladder::conv_stem::launch,
                                             .dtypes = {ladder::Dtype::f32},
                                             .supports = ladder::conv_stem::published_only,
                                             .min_arch = 80,
                                             .needs = "c3 r11 stride4 pad2; k a multiple of 4"})

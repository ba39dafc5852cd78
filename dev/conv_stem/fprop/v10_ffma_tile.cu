// Idea:   11 x 11 pixels x 96 output channels a block, 8 x 12 sums a thread, in plain fp32. A step is a row of the filter:
//         its rows of x and of w are copied asynchronously while the row before is multiplied, and lie in shared memory as
//         they do in global memory, so that 16-byte loads are four terms.
// Parent: v01.
// Why:    v01 loads two floats from L1 for a multiply-add. Here 20 loads of 16 bytes from shared memory feed 384 of them.
//         Limiter left: the FMA pipe.
// Needs:  sm_80; c3 r11 stride4 pad2; k a multiple of 4.

#include "dev/conv_stem/ffma_window.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv_stem {
namespace {

constexpr int kRows = 11;  // 55 x 55 pixels are 25 tiles without a remainder
constexpr int kCols = 11;
using Window = FfmaWindow<kRows, kCols>;
[[maybe_unused]] constexpr int kBlocksPerSm = 3;
constexpr std::size_t kSmemBytes = Window::kStages * Window::kStageFloats * sizeof(float);

__global__ void __launch_bounds__(kFfmaThreads, kBlocksPerSm)
    conv_stem_fprop_v10_kernel(Problem p, const float* x, const float* w, const float* bias, float* y) {
  LADDER_DYN_SMEM(dynamic_smem);
  const int tiles_w = ceil_div(p.out_w(), kCols);
  const int tiles_h = ceil_div(p.out_h(), kRows);
  const int col0 = blockIdx.x % tiles_w * kCols;
  const int row0 = blockIdx.x / tiles_w % tiles_h * kRows;
  const int image = blockIdx.x / tiles_w / tiles_h;
  const int channel0 = blockIdx.y * kFfmaChannels;

  ptx::grid_dependency_wait();
  float sum[kThreadPixels][kThreadChannels] = {};
  Window::convolve(p, x, w, image, row0, col0, channel0, reinterpret_cast<float*>(dynamic_smem), sum);
  ptx::grid_dependency_launch();

#pragma unroll
  for (int run = 0; run < kThreadChannels / 4; ++run) {
    const int channel = channel0 + thread_channel(run);
    if (channel >= p.k) break;
    const float4 b = four_biases(bias, channel);
#pragma unroll
    for (int i = 0; i < kThreadPixels; ++i) {
      const int pixel = thread_pixel(i);
      const int row = row0 + pixel / kCols;
      const int col = col0 + pixel % kCols;
      if (pixel >= kRows * kCols || row >= p.out_h() || col >= p.out_w()) continue;
      const float* const four = sum[i] + 4 * run;
      float* const to = y + static_cast<long long>((image * p.out_h() + row) * p.out_w() + col) * p.k + channel;
      *reinterpret_cast<float4*>(to) = {four[0] + b.x, four[1] + b.y, four[2] + b.z, four[3] + b.w};
    }
  }
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  const auto tiles = static_cast<unsigned>(p.n * ceil_div(p.out_h(), kRows) * ceil_div(p.out_w(), kCols));
  ladder::launch(conv_stem_fprop_v10_kernel,
                 {.grid = dim3(tiles, static_cast<unsigned>(ceil_div(p.k, kFfmaChannels))),
                  .block = kFfmaThreads,
                  .dynamic_smem = kSmemBytes,
                  .overlaps_previous = true},
                 stream, p, t.x, t.w, t.bias, t.y);
}

}  // namespace
}  // namespace ladder::conv_stem

LADDER_VERSION(ladder::conv_stem::Fprop, {.launch = ladder::conv_stem::launch,
                                          .dtypes = {ladder::Dtype::f32},
                                          .supports = ladder::conv_stem::published_only,
                                          .min_arch = 80,
                                          .needs = "c3 r11 stride4 pad2; k a multiple of 4"})

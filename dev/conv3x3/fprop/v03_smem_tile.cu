// Idea:   a block stages a tile of pixels with its halo, and the weights of 8 output channels, in shared memory.
// Parent: v02.
// Why:    v02 fetches every operand through L1 for every use. A tile of 256 pixels with a one-pixel halo is used nine
//         times per element from shared memory, and one pixel read there feeds eight sums. Limiter left: of eleven
//         instructions in the inner loop three are shared-memory loads, and nothing is fetched while sums are made.
// Needs:  nothing; tiles that hang over the image's edge waste their threads (three quarters of them at 8x8).

#include "core/device.h"
#include "dev/conv3x3/conv3x3.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kThreads = 256;  // a thread a pixel
constexpr int kBlockK = 8;     // output channels a block, all of them in each thread's registers
constexpr int kChunkC = 8;     // input channels staged at a time: 32-byte runs, a full sector, of x and w

template <int kTileW>
__global__ void conv3x3_fprop_v03_kernel(Problem p, const float* x, const float* w, const float* bias, float* y) {
  constexpr int kTileH = kThreads / kTileW;
  constexpr int kHaloW = kTileW + 2;
  constexpr int kHaloPixels = (kTileH + 2) * kHaloW;
  LADDER_SHARED(float, xs, [kChunkC][kHaloPixels]);
  LADDER_SHARED(float, ws, [kChunkC][9][kBlockK]);

  // Which tile: output channels fastest, so that blocks that run together share their pixels in L2.
  const int blocks_k = ceil_div(p.k, kBlockK);
  const int tiles_w = ceil_div(p.w, kTileW);
  const int tiles_h = ceil_div(p.h, kTileH);
  const int k0 = blockIdx.x % blocks_k * kBlockK;
  const int tile = blockIdx.x / blocks_k;
  const int col0 = tile % tiles_w * kTileW;
  const int row0 = tile / tiles_w % tiles_h * kTileH;
  const int image = tile / tiles_w / tiles_h;
  const int tx = threadIdx.x % kTileW;
  const int ty = threadIdx.x / kTileW;

  ptx::grid_dependency_wait();
  float sum[kBlockK] = {};
  for (int c0 = 0; c0 < p.c; c0 += kChunkC) {
    // The halo tile, channels fastest as in memory; zero outside the image and past the last channel.
    for (int i = threadIdx.x; i < kHaloPixels * kChunkC; i += kThreads) {
      const int c = i % kChunkC;
      const int pixel = i / kChunkC;
      const int row = row0 + pixel / kHaloW - 1;
      const int col = col0 + pixel % kHaloW - 1;
      const bool inside = row >= 0 && row < p.h && col >= 0 && col < p.w && c0 + c < p.c;
      xs[c][pixel] = inside ? x[((image * p.h + row) * p.w + col) * p.c + c0 + c] : 0.0f;
    }
    for (int i = threadIdx.x; i < kBlockK * 9 * kChunkC; i += kThreads) {
      const int c = i % kChunkC;
      const int rs = i / kChunkC % 9;
      const int k = i / kChunkC / 9;
      ws[c][rs][k] = k0 + k < p.k && c0 + c < p.c ? w[((k0 + k) * 9 + rs) * p.c + c0 + c] : 0.0f;
    }
    __syncthreads();

    for (int c = 0; c < kChunkC; ++c) {
#pragma unroll
      for (int rs = 0; rs < 9; ++rs) {
        const float a = xs[c][(ty + rs / 3) * kHaloW + tx + rs % 3];
#pragma unroll
        for (int k = 0; k < kBlockK; ++k) sum[k] += a * ws[c][rs][k];
      }
    }
    __syncthreads();
  }

  ptx::grid_dependency_launch();
  const int row = row0 + ty;
  const int col = col0 + tx;
  if (row >= p.h || col >= p.w) return;
  float* out = y + ((image * p.h + row) * p.w + col) * p.k + k0;
#pragma unroll
  for (int k = 0; k < kBlockK; ++k) {
    if (k0 + k < p.k) out[k] = sum[k] + (bias ? bias[k0 + k] : 0.0f);
  }
}

template <int kTileW>
void launch_tile(const Problem& p, const Fprop::Tensors& t, Stream stream) {
  const unsigned tiles = static_cast<unsigned>(p.n) * ceil_div(p.h, kThreads / kTileW) * ceil_div(p.w, kTileW);
  ladder::launch(conv3x3_fprop_v03_kernel<kTileW>,
                 {.grid = tiles * ceil_div(p.k, kBlockK), .block = kThreads, .overlaps_previous = true}, stream, p,
                 static_cast<const float*>(t.x), static_cast<const float*>(t.w), t.bias, static_cast<float*>(t.y));
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  if (p.w > 16) return launch_tile<32>(p, t, stream);
  if (p.w > 8) return launch_tile<16>(p, t, stream);
  launch_tile<8>(p, t, stream);
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Fprop, {.launch = ladder::conv3x3::launch,
                                        .dtypes = {ladder::Dtype::f32},
                                        .supports = ladder::conv3x3::bias_only})

// Idea:   a block stages a tile of dy with its halo, and the weights of 8 input channels, in shared memory.
// Parent: v01; fprop v03 is its mirror.
// Why:    v01 fetches every operand through L1 for every use. A tile of 256 pixels with a one-pixel halo is used nine
//         times per element from shared memory, and one pixel read there feeds eight sums. Limiter left: as fprop v03,
//         three shared-memory loads in eleven instructions, and nothing is fetched while sums are made.
// Needs:  nothing; tiles that hang over the image's edge waste their threads.

#include "core/device.h"
#include "dev/conv3x3/conv3x3.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kThreads = 256;  // a thread a pixel
constexpr int kBlockC = 8;     // input channels a block, all of them in each thread's registers
constexpr int kChunkK = 8;     // output channels staged at a time

template <int kTileW>
__global__ void conv3x3_dgrad_v02_kernel(Problem p, const float* dy, const float* w, float* dx) {
  constexpr int kTileH = kThreads / kTileW;
  constexpr int kHaloW = kTileW + 2;
  constexpr int kHaloPixels = (kTileH + 2) * kHaloW;
  LADDER_SHARED(float, dys, [kChunkK][kHaloPixels]);
  LADDER_SHARED(float, ws, [kChunkK][9][kBlockC]);

  // Which tile: input channels fastest, so that blocks that run together share their pixels in L2.
  const int blocks_c = ceil_div(p.c, kBlockC);
  const int tiles_w = ceil_div(p.w, kTileW);
  const int tiles_h = ceil_div(p.h, kTileH);
  const int c0 = blockIdx.x % blocks_c * kBlockC;
  const int tile = blockIdx.x / blocks_c;
  const int col0 = tile % tiles_w * kTileW;
  const int row0 = tile / tiles_w % tiles_h * kTileH;
  const int image = tile / tiles_w / tiles_h;
  const int tx = threadIdx.x % kTileW;
  const int ty = threadIdx.x / kTileW;

  float sum[kBlockC] = {};
  for (int k0 = 0; k0 < p.k; k0 += kChunkK) {
    // The halo tile, channels fastest as in memory; zero outside the image and past the last channel.
    for (int i = threadIdx.x; i < kHaloPixels * kChunkK; i += kThreads) {
      const int k = i % kChunkK;
      const int pixel = i / kChunkK;
      const int row = row0 + pixel / kHaloW - 1;
      const int col = col0 + pixel % kHaloW - 1;
      const bool inside = row >= 0 && row < p.h && col >= 0 && col < p.w && k0 + k < p.k;
      dys[k][pixel] = inside ? dy[((image * p.h + row) * p.w + col) * p.k + k0 + k] : 0.0f;
    }
    // Taps as they lie in w: the reader below counts them backwards.
    for (int i = threadIdx.x; i < kChunkK * 9 * kBlockC; i += kThreads) {
      const int c = i % kBlockC;
      const int rs = i / kBlockC % 9;
      const int k = i / kBlockC / 9;
      ws[k][rs][c] = k0 + k < p.k && c0 + c < p.c ? w[((k0 + k) * 9 + rs) * p.c + c0 + c] : 0.0f;
    }
    __syncthreads();

    // A chunk is summed apart: one chain of 9k additions loses more than the baseline's plan.
    float chunk_sum[kBlockC] = {};
    for (int k = 0; k < kChunkK; ++k) {
#pragma unroll
      for (int rs = 0; rs < 9; ++rs) {
        const float a = dys[k][(ty + rs / 3) * kHaloW + tx + rs % 3];
#pragma unroll
        for (int c = 0; c < kBlockC; ++c) chunk_sum[c] += a * ws[k][8 - rs][c];
      }
    }
#pragma unroll
    for (int c = 0; c < kBlockC; ++c) sum[c] += chunk_sum[c];
    __syncthreads();
  }

  const int row = row0 + ty;
  const int col = col0 + tx;
  if (row >= p.h || col >= p.w) return;
  float* out = dx + ((image * p.h + row) * p.w + col) * p.c + c0;
#pragma unroll
  for (int c = 0; c < kBlockC; ++c) {
    if (c0 + c < p.c) out[c] = sum[c];
  }
}

template <int kTileW>
void launch_tile(const Problem& p, const Dgrad::Tensors& t, Stream stream) {
  const unsigned tiles = static_cast<unsigned>(p.n) * ceil_div(p.h, kThreads / kTileW) * ceil_div(p.w, kTileW);
  ladder::launch(conv3x3_dgrad_v02_kernel<kTileW>, {.grid = tiles * ceil_div(p.c, kBlockC), .block = kThreads}, stream,
                 p, static_cast<const float*>(t.dy), static_cast<const float*>(t.w), static_cast<float*>(t.dx));
}

void launch(const Problem& p, const Dgrad::Tensors& t, void*, Stream stream) {
  if (p.w > 16) return launch_tile<32>(p, t, stream);
  if (p.w > 8) return launch_tile<16>(p, t, stream);
  launch_tile<8>(p, t, stream);
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Dgrad, {.launch = ladder::conv3x3::launch, .dtypes = {ladder::Dtype::f32}})

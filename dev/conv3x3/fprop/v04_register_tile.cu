// Idea:   a thread computes 8 neighbouring pixels x 8 output channels as outer products held in registers.
// Parent: v03.
// Why:    v03 loads three times for eight multiply-adds. Ten pixels in a row serve all three horizontal taps, so here
//         nine 16-byte loads feed 192 multiply-adds and the FMA pipe becomes the limiter. Limiter left: a block does not
//         fetch the next chunk while it multiplies (other blocks of the SM fill in), and tiles are still bound to the
//         image's shape: half the threads idle at 8x8.
// Needs:  nothing; 16-byte loads where c is a multiple of 4.

#include "core/device.h"
#include "dev/conv3x3/conv3x3.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kThreads = 128;
constexpr int kRunPixels = 8;  // a thread's pixels, in a row
constexpr int kThreadK = 8;    // a thread's output channels, in two runs of four, 32 apart: no bank conflicts
constexpr int kBlockK = 64;
constexpr int kBlockPixels = 128;
constexpr int kChunkC = 8;
static_assert(kBlockPixels / kRunPixels * (kBlockK / kThreadK) == kThreads, "every output has one thread");

template <int kTileW, int kVec>
__global__ void __launch_bounds__(kThreads)
    conv3x3_fprop_v04_kernel(Problem p, const float* x, const float* w, const float* bias, float* y) {
  constexpr int kTileH = kBlockPixels / kTileW;
  constexpr int kHaloW = kTileW + 2;
  constexpr int kPitch = (kHaloW + 3) / 4 * 4;                     // rows start on 16 bytes
  constexpr int kPlane = ((kTileH + 2) * kPitch + 7) / 8 * 8 + 4;  // four planes apart is 16 banks apart
  constexpr int kHaloPixels = (kTileH + 2) * kHaloW;
  LADDER_SHARED(float4, xs4, [kChunkC * kPlane / 4]);
  LADDER_SHARED(float4, ws4, [kChunkC * 9 * kBlockK / 4]);
  float* const xs = reinterpret_cast<float*>(xs4);  // [c][row * kPitch + col], planes of kPlane
  float* const ws = reinterpret_cast<float*>(ws4);  // [c][rs][k]

  const int blocks_k = ceil_div(p.k, kBlockK);
  const int tiles_w = ceil_div(p.w, kTileW);
  const int tiles_h = ceil_div(p.h, kTileH);
  const int k0 = blockIdx.x % blocks_k * kBlockK;
  const int tile = blockIdx.x / blocks_k;
  const int col0 = tile % tiles_w * kTileW;
  const int row0 = tile / tiles_w % tiles_h * kTileH;
  const int image = tile / tiles_w / tiles_h;

  // A warp holds 4 runs of pixels x 8 groups of output channels.
  const int group_k = threadIdx.x % 8;
  const int run = threadIdx.x / 8;
  const int ty = run / (kTileW / kRunPixels);
  const int tx = run % (kTileW / kRunPixels) * kRunPixels;

  ptx::grid_dependency_wait();
  float sum[kRunPixels][kThreadK] = {};
  for (int c0 = 0; c0 < p.c; c0 += kChunkC) {
    for (int i = threadIdx.x; i < kHaloPixels * kChunkC / kVec; i += kThreads) {
      const int c = i % (kChunkC / kVec) * kVec;
      const int halo_row = i / (kChunkC / kVec) / kHaloW;
      const int halo_col = i / (kChunkC / kVec) % kHaloW;
      const int row = row0 + halo_row - 1;
      const int col = col0 + halo_col - 1;
      const bool inside = row >= 0 && row < p.h && col >= 0 && col < p.w && c0 + c < p.c;
      const float* source = x + ((image * p.h + row) * p.w + col) * p.c + c0 + c;
      float* target = xs + c * kPlane + halo_row * kPitch + halo_col;
      if constexpr (kVec == 4) {
        const float4 v = inside ? *reinterpret_cast<const float4*>(source) : float4{0, 0, 0, 0};
        target[0 * kPlane] = v.x;
        target[1 * kPlane] = v.y;
        target[2 * kPlane] = v.z;
        target[3 * kPlane] = v.w;
      } else {
        *target = inside ? *source : 0.0f;
      }
    }
    // Output channels fastest over the lanes: the transposing stores hit 32 banks.
    for (int i = threadIdx.x; i < kBlockK * 9 * kChunkC / kVec; i += kThreads) {
      const int k = i % kBlockK;
      const int c = i / kBlockK % (kChunkC / kVec) * kVec;
      const int rs = i / kBlockK / (kChunkC / kVec);
      const bool inside = k0 + k < p.k && c0 + c < p.c;
      const float* source = w + ((k0 + k) * 9 + rs) * p.c + c0 + c;
      float* target = ws + (c * 9 + rs) * kBlockK + k;
      if constexpr (kVec == 4) {
        const float4 v = inside ? *reinterpret_cast<const float4*>(source) : float4{0, 0, 0, 0};
        target[0 * 9 * kBlockK] = v.x;
        target[1 * 9 * kBlockK] = v.y;
        target[2 * 9 * kBlockK] = v.z;
        target[3 * 9 * kBlockK] = v.w;
      } else {
        *target = inside ? *source : 0.0f;
      }
    }
    __syncthreads();

    for (int c = 0; c < kChunkC; ++c) {
#pragma unroll
      for (int r = 0; r < 3; ++r) {
        // Ten pixels of one row serve the three taps of that row.
        const float* a_row = xs + c * kPlane + (ty + r) * kPitch + tx;
        const float4 a0 = *reinterpret_cast<const float4*>(a_row);
        const float4 a1 = *reinterpret_cast<const float4*>(a_row + 4);
        const float2 a2 = *reinterpret_cast<const float2*>(a_row + 8);
        const float a[kRunPixels + 2] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w, a2.x, a2.y};
#pragma unroll
        for (int s = 0; s < 3; ++s) {
          const float* b_row = ws + (c * 9 + r * 3 + s) * kBlockK + group_k * 4;
          const float4 b0 = *reinterpret_cast<const float4*>(b_row);
          const float4 b1 = *reinterpret_cast<const float4*>(b_row + kBlockK / 2);
          const float b[kThreadK] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
          for (int i = 0; i < kRunPixels; ++i) {
#pragma unroll
            for (int k = 0; k < kThreadK; ++k) sum[i][k] += a[i + s] * b[k];
          }
        }
      }
    }
    __syncthreads();
  }

  ptx::grid_dependency_launch();
  const int row = row0 + ty;
  if (row >= p.h) return;
#pragma unroll
  for (int i = 0; i < kRunPixels; ++i) {
    const int col = col0 + tx + i;
    if (col >= p.w) break;
    float* out = y + ((image * p.h + row) * p.w + col) * p.k;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int k = k0 + half * (kBlockK / 2) + group_k * 4;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (k + j < p.k) out[k + j] = sum[i][half * 4 + j] + (bias ? bias[k + j] : 0.0f);
      }
    }
  }
}

template <int kTileW>
void launch_tile(const Problem& p, const Fprop::Tensors& t, Stream stream) {
  const unsigned tiles = static_cast<unsigned>(p.n) * ceil_div(p.h, kBlockPixels / kTileW) * ceil_div(p.w, kTileW);
  auto kernel = p.c % 4 == 0 ? conv3x3_fprop_v04_kernel<kTileW, 4> : conv3x3_fprop_v04_kernel<kTileW, 1>;
  ladder::launch(kernel, {.grid = tiles * ceil_div(p.k, kBlockK), .block = kThreads, .overlaps_previous = true}, stream,
                 p, static_cast<const float*>(t.x), static_cast<const float*>(t.w), t.bias, static_cast<float*>(t.y));
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  if (p.w > 8) return launch_tile<16>(p, t, stream);
  launch_tile<8>(p, t, stream);
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Fprop, {.launch = ladder::conv3x3::launch,
                                        .dtypes = {ladder::Dtype::f32},
                                        .supports = ladder::conv3x3::bias_only})

// Idea:   a block stages the pixels under 32 outputs of a row in shared memory, and of the weights a row of the filter at a
//         time, turned so that a warp's lanes read neighbouring channels.
// Parent: v01.
// Why:    each of v01's weight loads takes a warp to 32 cache lines. The published round 1 sends such loads through the
//         read-only cache, which gained nothing; here they come from shared memory, and a pixel read there feeds a lane's
//         three channels, a weight its four pixels. Limiter left: seven loads from shared memory for 12 multiply-adds, and
//         fp32 multiply-adds themselves.
// Needs:  r rows of the pixels under 32 outputs, and r*c rows of 97 weights, in 96 KB.

#include "core/device.h"
#include "dev/conv_stem/conv_stem.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv_stem {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kThreadPixels = 4;
constexpr int kBlockPixels = kWarps * kThreadPixels;
constexpr int kThreadChannels = 3;
constexpr int kBlockChannels = 32 * kThreadChannels;
constexpr int kPitch = kBlockChannels + 1;  // so that a warp's stores of one channel's weights lie in 32 banks

__host__ __device__ int patch_row(const Problem& p) { return ((kBlockPixels - 1) * p.stride + p.r) * p.c; }
__host__ __device__ int patch_floats(const Problem& p) { return p.r * patch_row(p); }
std::size_t smem_bytes(const Problem& p) { return (patch_floats(p) + p.r * p.c * kPitch) * sizeof(float); }

__global__ void __launch_bounds__(kThreads)
    conv_stem_fprop_v02_kernel(Problem p, const float* x, const float* w, const float* bias, float* y) {
  LADDER_DYN_SMEM(smem);
  float* const patch = reinterpret_cast<float*>(smem);
  float* const weights = patch + patch_floats(p);
  const int tiles = ceil_div(p.out_w(), kBlockPixels);
  const int col0 = blockIdx.x % tiles * kBlockPixels;
  const int row = blockIdx.x / tiles % p.out_h();
  const int image = blockIdx.x / tiles / p.out_h();
  const int k0 = blockIdx.y * kBlockChannels;
  const int lane = threadIdx.x % 32;
  const int first_pixel = threadIdx.x / 32 * kThreadPixels;  // of the block's

  // The patch, zero outside the image.
  ptx::grid_dependency_wait();
  const int row_floats = patch_row(p);
  for (int n = threadIdx.x; n < patch_floats(p); n += kThreads) {
    const int x_row = row * p.stride - p.pad + n / row_floats;
    const int x_col = col0 * p.stride - p.pad + n % row_floats / p.c;
    const bool inside = x_row >= 0 && x_row < p.h && x_col >= 0 && x_col < p.w;
    patch[n] = inside ? x[((image * p.h + x_row) * p.w + x_col) * p.c + n % p.c] : 0.0f;
  }

  float sum[kThreadPixels][kThreadChannels] = {};
  const int terms = p.r * p.c;  // of a row of the filter
  for (int i = 0; i < p.r; ++i) {
    for (int n = threadIdx.x; n < terms * kBlockChannels; n += kThreads) {
      const int k = n / terms;
      weights[n % terms * kPitch + k] = k0 + k < p.k ? w[(k0 + k) * p.filter() + i * terms + n % terms] : 0.0f;
    }
    __syncthreads();
    for (int term = 0; term < terms; ++term) {
      float pixel[kThreadPixels];
#pragma unroll
      for (int q = 0; q < kThreadPixels; ++q) {
        pixel[q] = patch[i * row_floats + (first_pixel + q) * p.stride * p.c + term];
      }
#pragma unroll
      for (int k = 0; k < kThreadChannels; ++k) {
        const float weight = weights[term * kPitch + lane + 32 * k];
#pragma unroll
        for (int q = 0; q < kThreadPixels; ++q) sum[q][k] += pixel[q] * weight;
      }
    }
    __syncthreads();
  }

  ptx::grid_dependency_launch();
#pragma unroll
  for (int q = 0; q < kThreadPixels; ++q) {
    const int col = col0 + first_pixel + q;
    if (col >= p.out_w()) break;
    float* const out = y + ((image * p.out_h() + row) * p.out_w() + col) * p.k;
#pragma unroll
    for (int k = 0; k < kThreadChannels; ++k) {
      const int channel = k0 + lane + 32 * k;
      if (channel < p.k) out[channel] = sum[q][k] + (bias ? bias[channel] : 0.0f);
    }
  }
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  const auto rows = static_cast<unsigned>(p.n) * p.out_h() * ceil_div(p.out_w(), kBlockPixels);
  ladder::launch(conv_stem_fprop_v02_kernel,
                 {.grid = {rows, static_cast<unsigned>(ceil_div(p.k, kBlockChannels))},
                  .block = kThreads,
                  .dynamic_smem = smem_bytes(p),
                  .overlaps_previous = true},
                 stream, p, t.x, t.w, t.bias, t.y);
}

const char* supports(const Problem& p) {
  return smem_bytes(p) <= 96 * 1024 ? nullptr : "shared memory does not hold the pixels under 32 outputs";
}

}  // namespace
}  // namespace ladder::conv_stem

LADDER_VERSION(ladder::conv_stem::Fprop, {.launch = ladder::conv_stem::launch,
                                          .dtypes = {ladder::Dtype::f32},
                                          .supports = ladder::conv_stem::supports})

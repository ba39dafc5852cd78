// Idea:   at most three output channels: all nine taps of a pixel of x are columns of one product, 27 of 32, with K = c.
//         The products of a patch of 18 x 18 pixels meet in shared memory, where each output adds up its nine.
// Parent: v09; few input channels were v11.
// Why:    v09 multiplies 64 output channels where there are three, and reads each pixel for nine taps. Here a pixel is
//         read once, and as it meets only weights its 16-byte loads are fragments of mma.sync as they come: no staging,
//         no barrier before the multiplications, weights stay in registers. Limiter left: reading x; the halo makes
//         that 1.27 times its bytes, from L2.
// Needs:  k <= 3; c a multiple of 8, at most 64; bf16 or fp16; sm_80.

#include "dev/common/parameter_type.h"
#include "dev/conv3x3/conv3x3.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/mma.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kMaxOutputs = 3;
constexpr int kMaxInputs = 64;
constexpr int kTile = 16;  // rows and columns of a block's outputs
constexpr int kHalo = kTile + 2;
constexpr int kHaloPixels = kHalo * kHalo;
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
[[maybe_unused]] constexpr int kBlocksPerSm = 4;  // 512 tiles of the U-Net's 32 images of 64 x 64 are one wave

constexpr int kStep = 16;  // pixels that a warp takes at a time
constexpr int kSteps = ceil_div(kHaloPixels, kStep);
// NOTE: of floats. Lanes of a quad store pairs side by side, and the quads of half a warp are columns, 8 banks apart.
constexpr int kPitch = 360;
static_assert(kPitch >= kSteps * kStep && kPitch % 32 == 8);

template <class T, int kOutputs, class P>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    conv3x3_fprop_v12_kernel(Problem p, const T* x, const T* w, const P* bias, T* y) {
  constexpr int kColumns = 9 * kOutputs;  // (tap, k)
  constexpr int kTilesM = ceil_div(kColumns, 16);
  LADDER_SHARED(float2, pairs, [kColumns][kPitch / 2]);  // of products, by pixel of the halo patch
  auto* const products = reinterpret_cast<float(*)[kPitch]>(pairs);

  const int tiles_w = ceil_div(p.w, kTile);
  const int tiles_h = ceil_div(p.h, kTile);
  const int col0 = blockIdx.x % tiles_w * kTile;
  const int row0 = blockIdx.x / tiles_w % tiles_h * kTile;
  const int image = blockIdx.x / tiles_w / tiles_h;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int g = lane / 4;
  const int t = lane % 4;

  // The order of K is free as long as both operands have the same: lane t of a quad has channels 8t to 8t + 7 of either
  // half of 64, a 16-byte load, of which each K step takes four.
  const auto load_halves = [&](const T* pixel, bool exists, uint4(&halves)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int c = half * 32 + t * 8;
      halves[half] = exists && c < p.c ? *reinterpret_cast<const uint4*>(pixel + c) : uint4{0, 0, 0, 0};
    }
  };

  // Pixels g and g + 8 of a step.
  const auto load_pixels = [&](int step, uint4(&pixels)[2][2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int pixel_idx = step * kStep + i * 8 + g;
      const int row = row0 + pixel_idx / kHalo - 1;
      const int col = col0 + pixel_idx % kHalo - 1;
      const bool inside = pixel_idx < kHaloPixels && static_cast<unsigned>(row) < static_cast<unsigned>(p.h) &&
                          static_cast<unsigned>(col) < static_cast<unsigned>(p.w);
      load_halves(x + (inside ? ((image * p.h + row) * p.w + col) * p.c : 0), inside, pixels[i]);
    }
  };
  // A step's loads are issued two steps ahead: 4 KB a warp in flight, 64 KB an SM.
  ptx::grid_dependency_wait();
  constexpr int kAhead = 2;
  uint4 ahead[kAhead][2][2];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load_pixels(warp + i * kWarps, ahead[i]);
  float first_sum[kOutputs];
#pragma unroll
  for (int k = 0; k < kOutputs; ++k) first_sum[k] = bias ? to_float(bias[k]) : 0.0f;

  // M is the columns, N the pixels: 16 bytes of a pixel are the fragments of two K steps as they come.
  std::uint32_t a[kTilesM][4][4];
#pragma unroll
  for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = m * 16 + e * 8 + g;
      const bool exists = column < kColumns;
      uint4 halves[2];
      load_halves(w + (exists ? (column % kOutputs * 9 + column / kOutputs) * p.c : 0), exists, halves);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        a[m][half * 2][e] = halves[half].x, a[m][half * 2][e + 2] = halves[half].y;
        a[m][half * 2 + 1][e] = halves[half].z, a[m][half * 2 + 1][e + 2] = halves[half].w;
      }
    }
  }

  constexpr int kRounds = ceil_div(kSteps, kWarps);
  static_assert(kRounds % kAhead == 0 && kSteps > kAhead * kWarps);
#pragma unroll kAhead
  for (int round = 0; round < kRounds; ++round) {
    const int step = round * kWarps + warp;
    if (step >= kSteps) break;
    uint4(&pixels)[2][2] = ahead[round % kAhead];
    float sum[2][kTilesM][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4& b = pixels[i][half];
#pragma unroll
        for (int m = 0; m < kTilesM; ++m) ptx::mma_m16n8k16<T>(sum[i][m], a[m][half * 2], {b.x, b.y});
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4& b = pixels[i][half];
#pragma unroll
        for (int m = 0; m < kTilesM; ++m) ptx::mma_m16n8k16<T>(sum[i][m], a[m][half * 2 + 1], {b.z, b.w});
      }
    }
    if (step + kAhead * kWarps < kSteps) load_pixels(step + kAhead * kWarps, pixels);
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = m * 16 + e * 8 + g;
        if (column >= kColumns) continue;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float* const to = &products[column][step * kStep + i * 8 + t * 2];
          *reinterpret_cast<float2*>(to) = {sum[i][m][e * 2], sum[i][m][e * 2 + 1]};
        }
      }
    }
  }
  ptx::grid_dependency_launch();
  __syncthreads();

  for (int pixel_idx = threadIdx.x; pixel_idx < kTile * kTile; pixel_idx += kThreads) {
    const int row = pixel_idx / kTile;
    const int col = pixel_idx % kTile;
    if (row0 + row >= p.h || col0 + col >= p.w) continue;
    T* const to = y + ((image * p.h + row0 + row) * p.w + col0 + col) * kOutputs;
#pragma unroll
    for (int k = 0; k < kOutputs; ++k) {
      float sum = first_sum[k];
#pragma unroll
      for (int tap = 0; tap < 9; ++tap) {
        sum += products[tap * kOutputs + k][(row + tap / 3) * kHalo + col + tap % 3];
      }
      to[k] = from_float<T>(sum);
    }
  }
}

template <class T, class P>
auto kernel_for(int outputs) {
  return outputs == 1   ? conv3x3_fprop_v12_kernel<T, 1, P>
         : outputs == 2 ? conv3x3_fprop_v12_kernel<T, 2, P>
                        : conv3x3_fprop_v12_kernel<T, kMaxOutputs, P>;
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      const auto blocks = static_cast<unsigned>(p.n * ceil_div(p.h, kTile) * ceil_div(p.w, kTile));
      with_parameter_type<T>(p.params16, [&](auto parameter) {
        using P = decltype(parameter);
        ladder::launch(kernel_for<T, P>(p.k), {.grid = blocks, .block = kThreads, .overlaps_previous = true}, stream, p,
                       static_cast<const T*>(t.x), static_cast<const T*>(t.w), typed<P>(t.bias), static_cast<T*>(t.y));
      });
    }
  });
}

const char* supports(const Problem& p) {
  if (const char* const why = bias_only(p)) return why;

  if (p.k > kMaxOutputs) return "more than 3 output channels";
  return p.c % 8 == 0 && p.c <= kMaxInputs ? nullptr : "c is not a multiple of 8, or more than 64";
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Fprop, {.launch = ladder::conv3x3::launch,
                                        .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::supports,
                                        .min_arch = 80,
                                        .needs = "at most 3 output channels; c a multiple of 8, at most 64"})

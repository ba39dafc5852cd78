// Idea:   implicit GEMM. Pixels are one flat dimension; each thread keeps, for the pixels it fetches, a base offset and a
//         nine-bit mask of the taps inside the image, and the next K step's operands travel in registers meanwhile.
// Parent: v04.
// Why:    v04's tiles follow the image, which idles half the threads at 8x8, and it waits for every chunk. Flat pixel
//         tiles fill the card at any shape, the K loop has no division and no bounds arithmetic, and fetching overlaps
//         multiplying. Limiter left: the FMA pipe, which the tensor cores of the next versions leave behind.
// Needs:  nothing; 16-byte loads where c is a multiple of 4.

#include "core/backend.h"
#include "dev/common/ffma_tile.h"
#include "dev/conv3x3/implicit_gemm.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/opaque.h"

namespace ladder::conv3x3 {
namespace {

// Channels in a K step. Single-element loads keep an index per element, so they take a shorter step.
template <int kVec>
constexpr int kChunk = kVec == 4 ? 16 : 8;

// K steps whose products are one chain of additions: 18 taps of a chunk, 288 products of whole 16-byte loads. A chain over
// all 9c would lose more digits than the baseline's plan from c = 64 on. Runs are added up in y, for registers are full.
constexpr int kRun = 18;

template <class Tile, int kVec, int kBlocksPerSm>
__global__ void __launch_bounds__(Tile::kThreads, kBlocksPerSm)
    conv3x3_fprop_v05_kernel(Problem p, const float* x, const float* w, const float* bias, float* y) {
  constexpr int kBlockM = Tile::kBlockM, kBlockN = Tile::kBlockN;
  constexpr int kThreads = Tile::kThreads, kThreadM = Tile::kThreadM, kThreadN = Tile::kThreadN;
  constexpr int kPitchM = Tile::kPitchM, kPitchN = Tile::kPitchN;
  constexpr int kChunkC = kChunk<kVec>;
  constexpr int kLoadsPerRow = kChunkC / kVec;
  constexpr int kLoadsA = kBlockM * kLoadsPerRow / kThreads;
  constexpr int kLoadsB = kBlockN * kLoadsPerRow / kThreads;
  static_assert(kThreads % kLoadsPerRow == 0, "a thread keeps its channel column");
  static_assert(kLoadsA * kThreads == kBlockM * kLoadsPerRow && kLoadsB * kThreads == kBlockN * kLoadsPerRow,
                "loads divide evenly");
  LADDER_SHARED(float4, as4, [2][kChunkC * kPitchM / 4]);  // [stage][c][pixel]
  LADDER_SHARED(float4, bs4, [2][kChunkC * kPitchN / 4]);  // [stage][c][k]

  const int blocks_k = ceil_div(p.k, kBlockN);
  const int k0 = blockIdx.x % blocks_k * kBlockN;
  const int m0 = blockIdx.x / blocks_k * kBlockM;

  // The index table: what this thread fetches is fixed but for the tap and the chunk.
  const int load_c = threadIdx.x % kLoadsPerRow * kVec;
  const int load_row = threadIdx.x / kLoadsPerRow;
  constexpr int kRowStep = kThreads / kLoadsPerRow;
  PixelRow rows[kLoadsA];
#pragma unroll
  for (int i = 0; i < kLoadsA; ++i) rows[i] = pixel_row(p, m0 + load_row + i * kRowStep);

  float a_next[kLoadsA][kVec];
  float b_next[kLoadsB][kVec];
  auto fetch = [&](const KStep& step) {
    const int c = step.c0 + load_c;
    const int offset = tap_offset(p, step.rs) + c;
#pragma unroll
    for (int i = 0; i < kLoadsA; ++i) {
      fetch_run(a_next[i], x + (rows[i].base + offset), (rows[i].taps >> step.rs & 1) && c < p.c);
    }
#pragma unroll
    for (int i = 0; i < kLoadsB; ++i) {
      const int k = k0 + load_row + i * kRowStep;
      fetch_run(b_next[i], w + (k * 9 + step.rs) * p.c + c, k < p.k && c < p.c);
    }
  };
  auto put = [&](int stage) {
    float* as = reinterpret_cast<float*>(as4[stage]);
    float* bs = reinterpret_cast<float*>(bs4[stage]);
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
#pragma unroll
      for (int i = 0; i < kLoadsA; ++i) as[(load_c + j) * kPitchM + load_row + i * kRowStep] = a_next[i][j];
#pragma unroll
      for (int i = 0; i < kLoadsB; ++i) bs[(load_c + j) * kPitchN + load_row + i * kRowStep] = b_next[i][j];
    }
  };

  float sum[kThreadM][kThreadN] = {};

  // y = bias + sum, or y += sum.
  auto add_to_y = [&](bool first) {
    // NOTE: opaque, or the compiler holds all addresses below in registers from the start.
    const int m_first = ptx::opaque(m0);
#pragma unroll
    for (int i = 0; i < kThreadM; ++i) {
      const int m = m_first + Tile::row(i);
      if (m >= p.n * p.h * p.w) continue;
#pragma unroll
      for (int j = 0; j < kThreadN; j += 4) {
        const int k = k0 + Tile::col(j);
        float* out = y + static_cast<long long>(m) * p.k + k;
        if (p.k % 4 == 0 && k < p.k) {
          float4 v{0, 0, 0, 0};
          if (!first) {
            v = *reinterpret_cast<const float4*>(out);
          } else if (bias) {
            v = {bias[k], bias[k + 1], bias[k + 2], bias[k + 3]};
          }
          *reinterpret_cast<float4*>(out) = {sum[i][j] + v.x, sum[i][j + 1] + v.y, sum[i][j + 2] + v.z,
                                             sum[i][j + 3] + v.w};
        } else {
#pragma unroll
          for (int l = 0; l < 4; ++l) {
            if (k + l < p.k) out[l] = sum[i][j + l] + (!first ? out[l] : bias ? bias[k + l] : 0.0f);
          }
        }
      }
    }
  };

  ptx::grid_dependency_wait();
  const int num_steps = 9 * ceil_div(p.c, kChunkC);
  KStep step;
  fetch(step);
  put(0);
  __syncthreads();
  for (int t = 0; t < num_steps; ++t) {
    if (t + 1 < num_steps) {
      step.advance(kChunkC);
      fetch(step);
    }
    Tile::template multiply<kChunkC>(sum, reinterpret_cast<const float*>(as4[t % 2]),
                                     reinterpret_cast<const float*>(bs4[t % 2]));
    // The other stage was last read before the previous barrier, so it may be written without one more.
    if (t + 1 < num_steps) put((t + 1) % 2);
    if ((t + 1) % kRun == 0 || t + 1 == num_steps) {
      add_to_y(t < kRun);
#pragma unroll
      for (int i = 0; i < kThreadM; ++i) {
#pragma unroll
        for (int j = 0; j < kThreadN; ++j) sum[i][j] = 0;
      }
    }
    __syncthreads();
  }
}

template <class Tile>
unsigned num_blocks(const Problem& p) {
  return static_cast<unsigned>(ceil_div(static_cast<int>(p.pixels()), Tile::kBlockM)) * ceil_div(p.k, Tile::kBlockN);
}

template <class Tile, int kBlocksPerSm>
void launch_tile(const Problem& p, const Fprop::Tensors& t, Stream stream) {
  auto kernel =
      p.c % 4 == 0 ? conv3x3_fprop_v05_kernel<Tile, 4, kBlocksPerSm> : conv3x3_fprop_v05_kernel<Tile, 1, kBlocksPerSm>;
  ladder::launch(kernel, {.grid = num_blocks<Tile>(p), .block = Tile::kThreads, .overlaps_previous = true}, stream, p,
                 static_cast<const float*>(t.x), static_cast<const float*>(t.w), t.bias, static_cast<float*>(t.y));
}

// Multiplications on the busiest SM's way, with kBlocksPerSm blocks side by side: a last wave costs as much as a full one.
template <class Tile, int kBlocksPerSm>
unsigned cost(const Problem& p) {
  const unsigned slots = backend::device().num_sms * kBlocksPerSm;
  return (num_blocks<Tile>(p) + slots - 1) / slots * kBlocksPerSm * Tile::kBlockM * Tile::kBlockN;
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  using Large = FfmaTile<128, 64, 8, 8>;
  using Small = FfmaTile<64, 64, 8, 4>;
  constexpr int kLargePerSm = 3;
  constexpr int kSmallPerSm = 5;
  if (cost<Large, kLargePerSm>(p) <= cost<Small, kSmallPerSm>(p)) return launch_tile<Large, kLargePerSm>(p, t, stream);
  launch_tile<Small, kSmallPerSm>(p, t, stream);
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Fprop, {.launch = ladder::conv3x3::launch,
                                        .dtypes = {ladder::Dtype::f32},
                                        .supports = ladder::conv3x3::bias_only})

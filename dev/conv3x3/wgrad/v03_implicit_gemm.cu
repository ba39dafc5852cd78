// Idea:   implicit GEMM in registers: 8 x 8 sums a thread, 16-byte loads, and the next pixels' operands travel in registers
//         while these multiply.
// Parent: v02.
// Why:    v02 reads shared memory twice for four multiply-adds and waits for every chunk. Here 64 multiply-adds share four
//         16-byte loads. Both operands have pixels outermost, so they go to shared memory as they come, untransposed, and
//         a thread's tap never changes, so an address costs one multiply-add. Tiles of 64 x 192 divide the U-Net's 9c.
//         Limiter left: the FMA pipe.
// Needs:  nothing; 16-byte loads where c and k are multiples of 4; a workspace for the partial sums.

#include "dev/common/ffma_tile.h"
#include "dev/conv3x3/wgrad_columns.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv3x3 {
namespace {

template <int kBlockN, int kThreadN, int kChunk_, int kVec_, int kBlocksPerSm_>
struct Tile : FfmaTile<64, kBlockN, 8, kThreadN> {
  static constexpr int kChunk = kChunk_;  // pixels staged at a time
  static constexpr int kVec = kVec_;
  static constexpr int kBlocksPerSm = kBlocksPerSm_;
};

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerSm)
    conv3x3_wgrad_v03_kernel(Problem p, Split split, const float* x, const float* dy, float* partial) {
  constexpr int kBlockM = Tile::kBlockM, kBlockN = Tile::kBlockN, kChunk = Tile::kChunk, kVec = Tile::kVec;
  constexpr int kThreads = Tile::kThreads, kThreadM = Tile::kThreadM, kThreadN = Tile::kThreadN;
  constexpr int kPitchM = Tile::kPitchM, kPitchN = Tile::kPitchN;
  constexpr int kRowStepA = kThreads / (kBlockM / kVec);
  constexpr int kRowStepB = kThreads / (kBlockN / kVec);
  constexpr int kLoadsA = kChunk / kRowStepA;
  constexpr int kLoadsB = kChunk / kRowStepB;
  static_assert(kThreads % (kBlockM / kVec) == 0 && kThreads % (kBlockN / kVec) == 0, "a thread keeps its columns");
  static_assert(kLoadsA * kRowStepA == kChunk && kLoadsB * kRowStepB == kChunk, "loads divide evenly");
  LADDER_SHARED(float4, as4, [2][kChunk * kPitchM / 4]);  // dy [stage][pixel][k]
  LADDER_SHARED(float4, bs4, [2][kChunk * kPitchN / 4]);  // X [stage][pixel][(r, s, c)]

  const int columns = 9 * p.c;
  const int tiles_n = ceil_div(columns, kBlockN);
  const int tiles_m = ceil_div(p.k, kBlockM);
  const int n0 = blockIdx.x % tiles_n * kBlockN;
  const int m0 = blockIdx.x / tiles_n % tiles_m * kBlockM;
  const int split_idx = blockIdx.x / tiles_n / tiles_m;
  const int begin = split_idx * split.units_per_split;
  const int end = min(begin + split.units_per_split, p.n * p.h * p.w);

  const int load_m = threadIdx.x % (kBlockM / kVec) * kVec;
  const int load_n = threadIdx.x % (kBlockN / kVec) * kVec;
  const int row_a = threadIdx.x / (kBlockM / kVec);
  const int row_b = threadIdx.x / (kBlockN / kVec);
  const bool valid_m = m0 + load_m < p.k;
  const Column column = column_of(p, n0 + load_n);
  const PixelStep step = pixel_step(p, kRowStepB);
  PixelCursor cursor = pixel_cursor(p, begin + row_b);  // of the next load of X

  float a_next[kLoadsA][kVec];
  float b_next[kLoadsB][kVec];
  auto fetch = [&](int pixel0) {
#pragma unroll
    for (int i = 0; i < kLoadsA; ++i) {
      const int pixel = pixel0 + row_a + i * kRowStepA;
      fetch_run(a_next[i], dy + pixel * p.k + m0 + load_m, valid_m && pixel < end);
    }
#pragma unroll
    for (int i = 0; i < kLoadsB; ++i) {
      fetch_run(b_next[i], x + (cursor.pixel * p.c + column.offset), cursor.pixel < end && column.inside(p, cursor));
      cursor.advance(p, step);
    }
  };
  auto put = [&](int stage) {
    float* const as = reinterpret_cast<float*>(as4[stage]) + row_a * kPitchM + load_m;
    float* const bs = reinterpret_cast<float*>(bs4[stage]) + row_b * kPitchN + load_n;
#pragma unroll
    for (int i = 0; i < kLoadsA; ++i) put_run(as + i * kRowStepA * kPitchM, a_next[i]);
#pragma unroll
    for (int i = 0; i < kLoadsB; ++i) put_run(bs + i * kRowStepB * kPitchN, b_next[i]);
  };

  float sum[kThreadM][kThreadN] = {};
  const bool accumulates_bias_gradient = p.bias && n0 == 0 && threadIdx.x < kBlockM;
  float bias_sum = 0;

  ptx::grid_dependency_wait();
  fetch(begin);
  put(0);
  __syncthreads();
  int stage = 0;
  for (int pixel0 = begin; pixel0 < end; pixel0 += kChunk, stage ^= 1) {
    const bool more = pixel0 + kChunk < end;
    if (more) fetch(pixel0 + kChunk);
    const float* const as = reinterpret_cast<const float*>(as4[stage]);
    Tile::template multiply<kChunk>(sum, as, reinterpret_cast<const float*>(bs4[stage]));
    if (accumulates_bias_gradient) {
      for (int i = 0; i < kChunk; ++i) bias_sum += as[i * kPitchM + threadIdx.x];
    }
    // The other stage was last read before the previous barrier, so it may be written without one more.
    if (more) put(stage ^ 1);
    __syncthreads();
  }

  ptx::grid_dependency_launch();
  float* const out = partial + static_cast<long long>(split_idx) * partial_row(p);
#pragma unroll
  for (int i = 0; i < kThreadM; ++i) {
    const int k = m0 + Tile::row(i);
    if (k >= p.k) continue;
#pragma unroll
    for (int j = 0; j < kThreadN; j += 4) {
      const int n = n0 + Tile::col(j);
      float* const to = out + k * columns + n;
      if constexpr (kVec == 4) {
        if (n < columns) *reinterpret_cast<float4*>(to) = {sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]};
      } else {
#pragma unroll
        for (int l = 0; l < 4; ++l) {
          if (n + l < columns) to[l] = sum[i][j + l];
        }
      }
    }
  }
  const int bias_k = m0 + static_cast<int>(threadIdx.x);
  if (accumulates_bias_gradient && bias_k < p.k) out[bias_offset(p) + bias_k] = bias_sum;
}

template <class Tile>
int num_tiles(const Problem& p) {
  return ceil_div(p.k, Tile::kBlockM) * ceil_div(9 * p.c, Tile::kBlockN);
}

template <class Tile>
SplitPlan plan_of(const Problem& p) {
  constexpr double kFlopPerNs = 380;  // of an SM: 50 TFLOP/s over 132
  const double unit_ns = 2.0 * Tile::kBlockM * Tile::kBlockN * Tile::kChunk * Tile::kBlocksPerSm / kFlopPerNs;
  const int chunks = ceil_div(static_cast<int>(p.pixels()), Tile::kChunk);
  SplitPlan plan = plan_split(partial_row(p), chunks, num_tiles<Tile>(p),
                              {.unit_ns = unit_ns, .start_ns = 3000, .blocks_per_sm = Tile::kBlocksPerSm});
  plan.split.units_per_split *= Tile::kChunk;
  return plan;
}

using Wide = Tile<192, 8, 12, 4, 2>;
using Small = Tile<64, 4, 16, 4, 4>;
using Single = Tile<64, 4, 8, 1, 4>;

// Calls f with the tile for the problem and its split.
template <class F>
void with_tile(const Problem& p, F&& f) {
  if (p.c % 4 != 0 || p.k % 4 != 0) return f(Single{}, plan_of<Single>(p).split);
  const SplitPlan wide = plan_of<Wide>(p), small = plan_of<Small>(p);
  if (wide.ns <= small.ns) return f(Wide{}, wide.split);
  f(Small{}, small.split);
}

std::size_t workspace_bytes(const Problem& p) {
  std::size_t bytes = 0;
  with_tile(p, [&](auto, const Split& split) { bytes = partial_bytes(p, split); });
  return bytes;
}

void launch(const Problem& p, const Wgrad::Tensors& t, void* workspace, Stream stream) {
  auto* const partial = static_cast<float*>(workspace);
  with_tile(p, [&](auto tile, const Split& split) {
    using Tile = decltype(tile);
    ladder::launch(conv3x3_wgrad_v03_kernel<Tile>,
                   {.grid = static_cast<unsigned>(num_tiles<Tile>(p)) * split.splits,
                    .block = Tile::kThreads,
                    .overlaps_previous = true},
                   stream, p, split, static_cast<const float*>(t.x), static_cast<const float*>(t.dy), partial);
    launch_reduce<float>(p, split, partial, t, stream);
  });
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Wgrad, {.launch = ladder::conv3x3::launch,
                                        .dtypes = {ladder::Dtype::f32},
                                        .workspace_bytes = ladder::conv3x3::workspace_bytes})

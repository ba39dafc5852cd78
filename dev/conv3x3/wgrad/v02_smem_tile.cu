// Idea:   a block owns 32 output channels x 32 columns (r, s, c) of dw and a share of the pixels; it stages 32 pixels of
//         dy and of x in shared memory at a time. Partial sums go to the workspace, a second kernel adds them in order.
// Parent: v01.
// Why:    v01 has 9ck threads, too few for the card, and loads both operands for every multiply-add. Splitting the pixels
//         makes as many blocks as there is room for, and a staged element is used 32 times. Limiter left: two
//         shared-memory loads for four multiply-adds, and nothing is fetched while sums are made.
// Needs:  nothing; a workspace for the partial sums.

#include "dev/conv3x3/wgrad_split.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kThreads = 256;
constexpr int kBlockM = 32;  // output channels
constexpr int kBlockN = 32;  // columns of dw: taps and input channels
constexpr int kChunk = 32;   // pixels staged at a time
constexpr int kSums = kBlockM * kBlockN / kThreads;
static_assert(kSums == 4, "a thread's output channels are one 16-byte load");

__global__ void __launch_bounds__(kThreads)
    conv3x3_wgrad_v02_kernel(Problem p, Split split, const float* x, const float* dy, float* partial) {
  LADDER_SHARED(float4, as, [kChunk][kBlockM / 4]);  // dy [pixel][k]
  LADDER_SHARED(float, bs, [kChunk][kBlockN]);       // x under its tap [pixel][(r, s, c)]

  // Tiles fastest, so that blocks that run together share their pixels in L2.
  const int columns = 9 * p.c;
  const int tiles_n = ceil_div(columns, kBlockN);
  const int tiles_m = ceil_div(p.k, kBlockM);
  const int n0 = blockIdx.x % tiles_n * kBlockN;
  const int m0 = blockIdx.x / tiles_n % tiles_m * kBlockM;
  const int split_idx = blockIdx.x / tiles_n / tiles_m;
  const int begin = split_idx * split.units_per_split;
  const int end = min(begin + split.units_per_split, p.n * p.h * p.w);

  // A thread fetches and sums the same column, hence the same tap, all along.
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int column = n0 + lane;
  const int r = column / p.c / 3;
  const int s = column / p.c % 3;
  const int tap_offset = ((r - 1) * p.w + s - 1) * p.c + column % p.c;

  float sum[kSums] = {};
  float bias_sum = 0;
  for (int pixel0 = begin; pixel0 < end; pixel0 += kChunk) {
    for (int i = warp; i < kChunk; i += kThreads / 32) {
      const int pixel = pixel0 + i;
      const int row = pixel / p.w % p.h + r - 1;
      const int col = pixel % p.w + s - 1;
      const bool inside = pixel < end && column < columns && row >= 0 && row < p.h && col >= 0 && col < p.w;
      reinterpret_cast<float*>(as[i])[lane] = pixel < end && m0 + lane < p.k ? dy[pixel * p.k + m0 + lane] : 0.0f;
      bs[i][lane] = inside ? x[pixel * p.c + tap_offset] : 0.0f;
    }
    __syncthreads();

#pragma unroll 8
    for (int i = 0; i < kChunk; ++i) {
      const float4 a = as[i][warp];
      const float b = bs[i][lane];
      sum[0] += a.x * b, sum[1] += a.y * b, sum[2] += a.z * b, sum[3] += a.w * b;
    }
    if (p.bias && n0 == 0 && warp == 0) {
      for (int i = 0; i < kChunk; ++i) bias_sum += reinterpret_cast<const float*>(as[i])[lane];
    }
    __syncthreads();
  }

  float* const out = partial + static_cast<long long>(split_idx) * partial_row(p);
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const int k = m0 + warp * kSums + i;
    if (k < p.k && column < columns) out[k * columns + column] = sum[i];
  }
  if (p.bias && n0 == 0 && warp == 0 && m0 + lane < p.k) out[bias_offset(p) + m0 + lane] = bias_sum;
}

int num_tiles(const Problem& p) { return ceil_div(p.k, kBlockM) * ceil_div(9 * p.c, kBlockN); }

Split split_of(const Problem& p) {
  const int chunks = ceil_div(static_cast<int>(p.pixels()), kChunk);
  const BlockCost cost{.unit_ns = 4600, .start_ns = 2000, .blocks_per_sm = 8};
  const Split split = plan_split(partial_row(p), chunks, num_tiles(p), cost).split;
  return {split.splits, split.units_per_split * kChunk};
}

std::size_t workspace_bytes(const Problem& p) { return partial_bytes(p, split_of(p)); }

void launch(const Problem& p, const Wgrad::Tensors& t, void* workspace, Stream stream) {
  const Split split = split_of(p);
  auto* const partial = static_cast<float*>(workspace);
  ladder::launch(conv3x3_wgrad_v02_kernel,
                 {.grid = static_cast<unsigned>(num_tiles(p)) * split.splits, .block = kThreads}, stream, p, split,
                 static_cast<const float*>(t.x), static_cast<const float*>(t.dy), partial);
  launch_reduce<float>(p, split, partial, t, stream);
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Wgrad, {.launch = ladder::conv3x3::launch,
                                        .dtypes = {ladder::Dtype::f32},
                                        .workspace_bytes = ladder::conv3x3::workspace_bytes})

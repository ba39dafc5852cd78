// Idea:   a thread keeps 8 x 8 sums in registers, fed by 128-bit loads from two buffers in shared memory; the rows are split
//         over blocks, whose partial sums a second kernel adds, in order.
// Parent: v02.
// Why:    v02 has a dozen blocks for 132 SMs, and spends more on reading shared memory than on multiplying. Splitting the
//         rows fills the card whatever the weights' shape; 64 sums need 16 values a row, so the FMA pipe becomes the
//         limiter. Both operands are read in place: their terms run down the columns. Limiter left: the FMA pipe.
// Needs:  nothing; 128-bit loads where n and k are multiples of four. A workspace where the rows are split.

#include "dev/gemm/ffma_store.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::gemm {
namespace {

// dw [n, k] = dy [m, n] transposed times x [m, k].
Product product(const Problem& p) { return {.rows = p.n, .columns = p.k, .terms = p.m}; }

template <class Tile, bool kVectors>
__global__ void __launch_bounds__(Tile::kThreads, kMinBlocks<Tile, kVectors>)
    gemm_wgrad_v03_kernel(Problem p, Split split, const float* x, const float* dy, float* dw, float* dbias,
                          float* partial) {
  constexpr int kThreads = Tile::kThreads;
  constexpr int kStage = kChunk * (Tile::kPitchM + Tile::kPitchN);
  static_assert(kThreads >= Tile::kBlockM, "a thread partial_row up a column of dy");
  LADDER_SHARED(float4, smem, [2 * kStage / 4]);  // twice: dy [m][n], then x [m][k]
  float* const stages = reinterpret_cast<float*>(smem);

  const int blocks_k = ceil_div(p.k, Tile::kBlockN);
  const int blocks_n = ceil_div(p.n, Tile::kBlockM);
  const int k0 = blockIdx.x % blocks_k * Tile::kBlockN;
  const int n0 = blockIdx.x / blocks_k % blocks_n * Tile::kBlockM;
  const int split_idx = blockIdx.x / blocks_k / blocks_n;
  const int first = split_idx * split.units_per_split * kChunk;
  const int end = min(p.m, first + split.units_per_split * kChunk);

  DownColumns<Tile::kBlockM, Tile::kPitchM, kThreads, kVectors> a(dy, n0, p.n, p.m);
  DownColumns<Tile::kBlockN, Tile::kPitchN, kThreads, kVectors> b(x, k0, p.k, p.m);
  float acc[Tile::kThreadM][Tile::kThreadN] = {};
  float bias_sum = 0;  // of column n0 + threadIdx.x
  const int bias_column = threadIdx.x;
  const bool accumulates_bias_gradient = dbias && k0 == 0 && bias_column < Tile::kBlockM;
  ptx::grid_dependency_wait();
  a.fetch(first, end);
  b.fetch(first, end);
  for (int m = first, stage = 0; m < end; m += kChunk, stage ^= 1) {
    // One barrier a chunk: a stage is written again two chunks later, when all threads have left it.
    float* const as = stages + stage * kStage;
    float* const bs = as + kChunk * Tile::kPitchM;
    a.put(as);
    b.put(bs);
    __syncthreads();
    if (m + kChunk < end) {
      a.fetch(m + kChunk, end);
      b.fetch(m + kChunk, end);
    }
    Tile::template multiply<kChunk>(acc, as, bs);
    if (accumulates_bias_gradient) {
      // A chunk by itself first: one long sum of thousands of rows rounds three times as much.
      float chunk_sum = 0;
#pragma unroll
      for (int row = 0; row < kChunk; ++row) chunk_sum += as[row * Tile::kPitchM + bias_column];
      bias_sum += chunk_sum;
    }
  }

  ptx::grid_dependency_launch();
  const long long weights = static_cast<long long>(p.n) * p.k;
  const bool single_split = split.splits == 1;
  float* const partial_row = partial + split_idx * (padded(weights) + padded(dbias ? p.n : 0));
  store_sums<Tile>(acc, n0, k0, p.n, p.k, {}, single_split ? dw : partial_row);
  if (accumulates_bias_gradient && n0 + bias_column < p.n)
    (single_split ? dbias : partial_row + padded(weights))[n0 + bias_column] = bias_sum;
}

template <class Tile>
KernelPlan<Wgrad> tile_plan(const Problem& p, const char* name, Split split) {
  const long long count = static_cast<long long>(p.n) * p.k;
  const int bias_count = p.bias ? p.n : 0;
  const auto bind = [p, split, count, bias_count](const Wgrad::Tensors& t, void* workspace) {
    auto* const partial = static_cast<float*>(workspace);
    auto* const dw = static_cast<float*>(t.dw);
    const auto kernel =
        p.n % 4 == 0 && p.k % 4 == 0 ? gemm_wgrad_v03_kernel<Tile, true> : gemm_wgrad_v03_kernel<Tile, false>;
    const auto blocks = static_cast<unsigned>(num_tiles<Tile>(product(p))) * split.splits;
    return with_reduce<float>(
        split,
        bind_launch(kernel, {.grid = blocks, .block = Tile::kThreads, .overlaps_previous = true}, p, split,
                    static_cast<const float*>(t.x), static_cast<const float*>(t.dy), dw, t.dbias, partial),
        partial, count, p.k, {}, dw, bias_count, t.dbias);
  };
  return {.name = name, .workspace_bytes = partial_bytes(split, count, bias_count), .bind = bind};
}

using Square = FfmaTile<128, 128, 8, 8>;
using Tall = FfmaTile<128, 64, 8, 8>;
using Small = FfmaTile<64, 64, 8, 4>;

std::vector<KernelPlan<Wgrad>> plans(const Problem& p) {
  const Product c = product(p);
  const SplitPlan choices[] = {plan_ffma<Square>(c), plan_ffma<Tall>(c), plan_ffma<Small>(c)};
  const int units = ceil_div(p.m, kChunk);
  return with_default<Wgrad>(
      {tile_plan<Square>(p, "128x128", choices[0].split), tile_plan<Tall>(p, "128x64", choices[1].split),
       tile_plan<Small>(p, "64x64", choices[2].split), tile_plan<Small>(p, "64x64 in two", halves(units)),
       tile_plan<Small>(p, "64x64 in one", unsplit(units))},
      fastest(choices));
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Wgrad, {.plans = ladder::gemm::plans,
                                     .plan_names = {"128x128", "128x64", "64x64", "64x64 in two", "64x64 in one"},
                                     .dtypes = {ladder::Dtype::f32},
                                     .supports = ladder::gemm::one_x_only})

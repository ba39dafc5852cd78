// Idea:   a thread keeps 8 x 8 sums in registers, fed by 128-bit loads from two buffers in shared memory; where the output
//         has too few tiles for all SMs, the sums are split and added by a second kernel, in order.
// Parent: v02.
// Why:    v02 spends more on reading shared memory than on multiplying. 64 sums need 16 values, four 128-bit loads, for each
//         term, so the FMA pipe becomes the limiter; the next chunk travels through registers meanwhile, and one barrier a
//         chunk is enough; w needs no transposing, for its sums run down its columns. Limiter left: the FMA pipe.
// Needs:  nothing; 128-bit loads where n and k are multiples of four. A workspace where the sums are split.

#include "dev/common/ffma_tile.h"
#include "dev/gemm/ffma_operand.h"
#include "dev/common/split_plan.h"
#include "dev/gemm/output.h"
#include "dev/gemm/partial_sums.h"

namespace ladder::gemm {
namespace {

constexpr int kChunk = 16;

// Of an SM: what leaves a thread the registers for its sums and the next chunk. Single elements take more addresses.
template <class Tile, bool kVectors>
[[maybe_unused]] constexpr int kMinBlocks = !kVectors               ? 1
                                            : Tile::kThreads == 256 ? 2
                                                                    : 3;

template <class Tile, bool kVectors>
__global__ void __launch_bounds__(Tile::kThreads, kMinBlocks<Tile, kVectors>)
    gemm_dgrad_v03_kernel(Problem p, Split split, const float* dy, const float* w, Epilogue<float> epilogue,
                          SideBySide<float> dx, float* partial) {
  constexpr int kThreads = Tile::kThreads;
  constexpr int kStage = kChunk * (Tile::kPitchM + Tile::kPitchN);
  LADDER_SHARED(float4, smem, [2 * kStage / 4]);  // twice: dy [n][m], then w [n][k]
  float* const stages = reinterpret_cast<float*>(smem);

  const int blocks_k = ceil_div(p.k, Tile::kBlockN);
  const int blocks_m = ceil_div(p.m, Tile::kBlockM);
  const int k0 = blockIdx.x % blocks_k * Tile::kBlockN;
  const int m0 = blockIdx.x / blocks_k % blocks_m * Tile::kBlockM;
  const int split_idx = blockIdx.x / blocks_k / blocks_m;
  const int first = split_idx * split.each * kChunk;
  const int end = min(p.n, first + split.each * kChunk);

  AlongRows<Tile::kBlockM, kChunk, Tile::kPitchM, kThreads, kVectors> a(dy, m0, p.m, p.n);
  DownColumns<Tile::kBlockN, kChunk, Tile::kPitchN, kThreads, kVectors> b(w, k0, p.k);
  float sum[Tile::kThreadM][Tile::kThreadN] = {};
  a.fetch(first, end);
  b.fetch(first, end);
  for (int n = first, stage = 0; n < end; n += kChunk, stage ^= 1) {
    // What the barrier protects: a stage is written again two chunks later, when all threads have left it.
    float* const as = stages + stage * kStage;
    float* const bs = as + kChunk * Tile::kPitchM;
    a.put(as);
    b.put(bs);
    __syncthreads();
    if (n + kChunk < end) {
      a.fetch(n + kChunk, end);
      b.fetch(n + kChunk, end);
    }
    Tile::template multiply<kChunk>(sum, as, bs);
  }

  if (split.splits == 1) {
    store_sums<Tile>(sum, m0, k0, p.m, p.k, epilogue, dx);
  } else {
    store_sums<Tile>(sum, m0, k0, p.m, p.k, {}, partial + split_idx * padded(static_cast<long long>(p.m) * p.k));
  }
}

template <class Tile>
int num_tiles(const Problem& p) {
  return ceil_div(p.m, Tile::kBlockM) * ceil_div(p.k, Tile::kBlockN);
}

template <class Tile>
SplitPlan split_of(const Problem& p) {
  constexpr int kBlocksPerSm = 512 / Tile::kThreads;
  constexpr int kBusyBlocks = 256 / Tile::kThreads;  // two warps for each of an SM's four schedulers
  // An SM multiplies 128 pairs a clock, of which the loop reaches three quarters.
  constexpr double kUnitNs = Tile::kBlockM * Tile::kBlockN * kChunk / (128 * 1.7 * 0.75);
  return plan_split(double(p.m) * p.k, ceil_div(p.n, kChunk), num_tiles<Tile>(p),
                    {.unit_ns = kUnitNs,
                     .finish_ns = 0,
                     .start_ns = 2000,
                     .blocks_per_sm = kBlocksPerSm,
                     .busy_blocks = kBusyBlocks});
}

template <class Tile>
KernelPlan<Dgrad> tile_plan(const Problem& p, const char* name, Split split) {
  const long long count = static_cast<long long>(p.m) * p.k;
  const auto bind = [p, split, count](const Dgrad::Tensors& t, void* workspace) {
    auto* const partial = static_cast<float*>(workspace);
    const auto dx = output_of<float>(p, t);
    const auto kernel =
        p.n % 4 == 0 && p.k % 4 == 0 ? gemm_dgrad_v03_kernel<Tile, true> : gemm_dgrad_v03_kernel<Tile, false>;
    const auto blocks = static_cast<unsigned>(num_tiles<Tile>(p)) * split.splits;
    return with_reduce<float>(
        split,
        bind_launch(kernel, {.grid = blocks, .block = Tile::kThreads}, p, split, static_cast<const float*>(t.dy),
                    static_cast<const float*>(t.w), epilogue_of<float>(t), dx, partial),
        partial, count, p.k, epilogue_of<float>(t), dx);
  };
  return {.name = name, .workspace_bytes = partial_bytes(split, count), .bind = bind};
}

using Square = FfmaTile<128, 128, 8, 8>;
using Tall = FfmaTile<128, 64, 8, 8>;
using Small = FfmaTile<64, 64, 8, 4>;
using Low = FfmaTile<32, 64, 4, 4>;

std::vector<KernelPlan<Dgrad>> plans(const Problem& p) {
  const SplitPlan choices[] = {split_of<Square>(p), split_of<Tall>(p), split_of<Small>(p), split_of<Low>(p)};
  return with_default<Dgrad>(
      {tile_plan<Square>(p, "128x128", choices[0].split), tile_plan<Tall>(p, "128x64", choices[1].split),
       tile_plan<Small>(p, "64x64", choices[2].split), tile_plan<Low>(p, "32x64", choices[3].split),
       tile_plan<Small>(p, "64x64 in two", halves(ceil_div(p.n, kChunk)))},
      fastest(choices));
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Dgrad, {.plans = ladder::gemm::plans,
                                     .plan_names = {"128x128", "128x64", "64x64", "32x64", "64x64 in two"},
                                     .dtypes = {ladder::Dtype::f32}})

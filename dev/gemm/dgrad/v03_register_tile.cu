// Idea:   a thread keeps 8 x 8 sums in registers, fed by 128-bit loads from two buffers in shared memory; where the output
//         has too few tiles for all SMs, the sums are split and added by a second kernel, in order.
// Parent: v02.
// Why:    v02 spends more on reading shared memory than on multiplying. 64 sums need 16 values, four 128-bit loads, for each
//         term, so the FMA pipe becomes the limiter; the next chunk travels through registers meanwhile, and one barrier a
//         chunk is enough; w needs no transposing, for its sums run down its columns. Limiter left: the FMA pipe.
// Needs:  nothing; 128-bit loads where n and k are multiples of four. A workspace where the sums are split.

#include "dev/gemm/concat_operand.h"
#include "dev/gemm/ffma_register_tile.h"

namespace ladder::gemm {
namespace {

// dx [m, k] = dy [m, n] times w [n, k]: the terms of a sum lie along dy's rows and down w's columns.
__host__ __device__ Product product(const Problem& p) { return {.rows = p.m, .columns = p.k, .terms = p.n}; }

template <class Tile, bool kVectors>
using A = AlongRows<Tile::kBlockM, Tile::kPitchM, Tile::kThreads, kVectors>;
template <class Tile, bool kVectors>
using B = DownColumns<Tile::kBlockN, Tile::kPitchN, Tile::kThreads, kVectors>;

template <class Tile, bool kVectors>
__global__ void __launch_bounds__(Tile::kThreads, kMinBlocks<Tile, kVectors>)
    gemm_dgrad_v03_kernel(Problem p, Split split, const float* dy, const float* w, Epilogue<float> epilogue,
                          ConcatOperand<float> dx, float* partial) {
  ffma_register_tile<Tile, A<Tile, kVectors>, B<Tile, kVectors>>(product(p), split, dy, w, epilogue, dx, partial);
}

template <class Tile>
KernelPlan<Dgrad> tile_plan(const Problem& p, const char* name, Split split) {
  const Product c = product(p);
  const auto bind = [p, split, c](const Dgrad::Tensors& t, void* workspace) {
    auto* const partial = static_cast<float*>(workspace);
    const auto dx = output_of<float>(p, t);
    const auto kernel =
        p.n % 4 == 0 && p.k % 4 == 0 ? gemm_dgrad_v03_kernel<Tile, true> : gemm_dgrad_v03_kernel<Tile, false>;
    const auto blocks = static_cast<unsigned>(num_tiles<Tile>(c)) * split.splits;
    return with_reduce<float>(split,
                              bind_launch(kernel, {.grid = blocks, .block = Tile::kThreads, .overlaps_previous = true},
                                          p, split, static_cast<const float*>(t.dy), static_cast<const float*>(t.w),
                                          epilogue_of<float>(t), dx, partial),
                              partial, c.count(), c.columns, epilogue_of<float>(t), dx);
  };
  return {.name = name, .workspace_bytes = partial_bytes(split, c.count()), .bind = bind};
}

using Square = FfmaTile<128, 128, 8, 8>;
using Tall = FfmaTile<128, 64, 8, 8>;
using Small = FfmaTile<64, 64, 8, 4>;
using Low = FfmaTile<32, 64, 4, 4>;

std::vector<KernelPlan<Dgrad>> plans(const Problem& p) {
  const Product c = product(p);
  const SplitPlan choices[] = {plan_ffma<Square>(c), plan_ffma<Tall>(c), plan_ffma<Small>(c), plan_ffma<Low>(c)};
  return with_default<Dgrad>(
      {tile_plan<Square>(p, "128x128", choices[0].split), tile_plan<Tall>(p, "128x64", choices[1].split),
       tile_plan<Small>(p, "64x64", choices[2].split), tile_plan<Low>(p, "32x64", choices[3].split),
       tile_plan<Small>(p, "64x64 in two", halves(ceil_div(c.terms, kChunk)))},
      fastest(choices));
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Dgrad, {.plans = ladder::gemm::plans,
                                     .plan_names = {"128x128", "128x64", "64x64", "32x64", "64x64 in two"},
                                     .dtypes = {ladder::Dtype::f32}})

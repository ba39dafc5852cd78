// Idea:   mma.sync with ldmatrix, three to four stages of cp.async in flight, and a choice of tiles: large where rows are
//         many, small where they are few. w is read in place, n outermost, and ldmatrix transposes it.
// Parent: v04.
// Why:    the U-Net's layers are bound by memory, not by multiplying: what counts is that many loads and stores are in
//         flight, and that all SMs have blocks. A 1x1 convolution of 64 features is a single step of the loop, so a block asks
//         for no more shared memory than its steps take, and more blocks share an SM. Limiter left: a block's loads,
//         products and stores follow one another, and only its neighbours on the SM fill the gaps.
// Needs:  nothing; cp.async where n and k are multiples of 16 bytes, else single elements, synchronously.

#include "dev/common/along_rows_tile.h"
#include "dev/common/down_columns_tile.h"
#include "dev/gemm/concat_operand.h"
#include "dev/gemm/mma_multistage.h"

namespace ladder::gemm {
namespace {

// dx [m, k] = dy [m, n] times w [n, k]: the terms of a sum lie along dy's rows and down w's columns.
__host__ __device__ Product product(const Problem& p) { return {.rows = p.m, .columns = p.k, .terms = p.n}; }

template <class T, class Tile>
using Stage = StageOf<AlongRowsTile<T, Tile::kBlockM>, DownColumnsTile<T, Tile::kBlockN>>;

template <class T, class Tile, bool kVectors>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerSm)
    gemm_dgrad_v05_kernel(Problem p, Split split, const T* dy, const T* w, Epilogue<T> epilogue, ConcatOperand<T> dx,
                          float* partial) {
  mma_multistage<Tile, Stage<T, Tile>, kVectors>(product(p), split, dy, w, epilogue, dx, partial);
}

template <class T, class Tile>
KernelPlan<Dgrad> tile_plan(const Problem& p, const char* name, Split split) {
  const Product c = product(p);
  const auto bind = [p, split, c](const Dgrad::Tensors& t, void* workspace) {
    auto* const partial = static_cast<float*>(workspace);
    const auto dx = output_of<T>(p, t);
    const auto kernel = p.n % kRun<T> == 0 && p.k % kRun<T> == 0 ? gemm_dgrad_v05_kernel<T, Tile, true>
                                                                 : gemm_dgrad_v05_kernel<T, Tile, false>;
    const LaunchConfig config = {.grid = static_cast<unsigned>(num_tiles<Tile>(c)) * split.splits,
                                 .block = Tile::kThreads,
                                 .dynamic_smem = Tile::smem_bytes(Stage<T, Tile>::kBytes, split.units_per_split),
                                 .overlaps_previous = true};
    return with_reduce<T>(split,
                          bind_launch(kernel, config, p, split, static_cast<const T*>(t.dy), static_cast<const T*>(t.w),
                                      epilogue_of<T>(t), dx, partial),
                          partial, c.count(), c.columns, epilogue_of<T>(t), dx);
  };
  return {.name = name, .workspace_bytes = partial_bytes(split, c.count()), .bind = bind};
}

using Square = MmaTile<128, 128, 2, 2, 1, 3, 2>;
using Tall = MmaTile<128, 64, 2, 2, 1, 3, 3>;
using ThreeQuarters = MmaTile<64, 96, 2, 2, 1, 3, 3>;
using Small = MmaTile<64, 64, 2, 2, 1, 4, 3>;
using Low = MmaTile<32, 32, 1, 1, 4, 4, 4>;

std::vector<KernelPlan<Dgrad>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    const Product c = product(p);
    const SplitPlan choices[] = {plan_mma<T, Square>(c), plan_mma<T, Tall>(c), plan_mma<T, ThreeQuarters>(c),
                                 plan_mma<T, Small>(c), plan_mma<T, Low>(c)};
    return with_default<Dgrad>(
        {tile_plan<T, Square>(p, "128x128", choices[0].split), tile_plan<T, Tall>(p, "128x64", choices[1].split),
         tile_plan<T, ThreeQuarters>(p, "64x96", choices[2].split), tile_plan<T, Small>(p, "64x64", choices[3].split),
         tile_plan<T, Low>(p, "32x32", choices[4].split),
         tile_plan<T, Small>(p, "64x64 in two", halves(ceil_div(c.terms, kStepTerms<T>)))},
        fastest(choices));
  });
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Dgrad, {.plans = ladder::gemm::plans,
                                     .plan_names = {"128x128", "128x64", "64x96", "64x64", "32x32", "64x64 in two"},
                                     .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                     .min_arch = 80})

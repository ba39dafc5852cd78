// Idea:   mma.sync with ldmatrix on XOR-swizzled rows of 128 bytes, three to four stages of cp.async in flight, and a choice
//         of tiles: as wide as the output where rows are many, small where they are few.
// Parent: v04.
// Why:    the U-Net's layers are bound by memory, not by multiplying: what counts is that x is read once, that many loads
//         are in flight, and that all SMs have blocks. Tiles of 64 to 192 columns take a row of x from DRAM once; sums of
//         32 rows are split over warps or, if they are long, over blocks. Limiter left: a block's loads, products and
//         stores follow one another, and only its neighbours on the SM fill the gaps.
// Needs:  nothing; cp.async where k is a multiple of 16 bytes, else single elements, synchronously.

#include "dev/common/along_rows_tile.h"
#include "dev/gemm/mma_multistage.h"

namespace ladder::gemm {
namespace {

// y [m, n] = x [m, k] times w [n, k] transposed: the terms of a sum lie along the rows of both.
__host__ __device__ Product product(const Problem& p) { return {.rows = p.m, .columns = p.n, .terms = p.k}; }

template <class T, class Tile>
using Stage = StageOf<AlongRowsTile<T, Tile::kBlockM>, AlongRowsTile<T, Tile::kBlockN>>;

template <class T, class P, class Tile, bool kVectors>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerSm)
    gemm_fprop_v05_kernel(Problem p, Split split, const T* x, const T* w, Epilogue<T, P> epilogue, T* y,
                          float* partial) {
  mma_multistage<Tile, Stage<T, Tile>, kVectors>(product(p), split, x, w, epilogue, y, partial);
}

template <class T, class Tile>
KernelPlan<Fprop> tile_plan(const Problem& p, const char* name, Split split) {
  const Product c = product(p);
  const auto bind = [p, split, c](const Fprop::Tensors& t, void* workspace) {
    auto* const partial = static_cast<float*>(workspace);
    auto* const y = static_cast<T*>(t.y);
    const LaunchConfig config = {.grid = static_cast<unsigned>(num_tiles<Tile>(c)) * split.splits,
                                 .block = Tile::kThreads,
                                 .dynamic_smem = Tile::smem_bytes(Stage<T, Tile>::kBytes, split.units_per_split),
                                 .overlaps_previous = true};
    return with_parameter_type<T>(p.params16, [&](auto parameter) {
      using P = decltype(parameter);
      const Epilogue<T, P> epilogue = epilogue_of<T, P>(p, t);
      const auto kernel =
          p.k % kRun<T> == 0 ? gemm_fprop_v05_kernel<T, P, Tile, true> : gemm_fprop_v05_kernel<T, P, Tile, false>;
      return with_reduce(split,
                         bind_launch(kernel, config, p, split, static_cast<const T*>(t.x), static_cast<const T*>(t.w),
                                     epilogue, y, partial),
                         partial, c.count(), c.columns, epilogue, y);
    });
  };
  return {.name = name, .workspace_bytes = partial_bytes(split, c.count()), .bind = bind};
}

using Square = MmaTile<128, 128, 2, 2, 1, 3, 2>;
using Tall = MmaTile<128, 64, 2, 2, 1, 3, 3>;
using ThreeQuarters = MmaTile<64, 96, 2, 2, 1, 3, 3>;
using Small = MmaTile<64, 64, 2, 2, 1, 4, 3>;
using Low = MmaTile<32, 32, 1, 1, 4, 4, 4>;

std::vector<KernelPlan<Fprop>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    const Product c = product(p);
    const SplitPlan choices[] = {plan_mma<T, Square>(c), plan_mma<T, Tall>(c), plan_mma<T, ThreeQuarters>(c),
                                 plan_mma<T, Small>(c), plan_mma<T, Low>(c)};
    return with_default<Fprop>(
        {tile_plan<T, Square>(p, "128x128", choices[0].split), tile_plan<T, Tall>(p, "128x64", choices[1].split),
         tile_plan<T, ThreeQuarters>(p, "64x96", choices[2].split), tile_plan<T, Small>(p, "64x64", choices[3].split),
         tile_plan<T, Low>(p, "32x32", choices[4].split),
         tile_plan<T, Small>(p, "64x64 in two", halves(ceil_div(c.terms, kStepTerms<T>)))},
        fastest(choices));
  });
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Fprop, {.plans = ladder::gemm::plans,
                                     .plan_names = {"128x128", "128x64", "64x96", "64x64", "32x32", "64x64 in two"},
                                     .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                     .supports = ladder::gemm::one_x_only,
                                     .min_arch = 80})

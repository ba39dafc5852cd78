// Idea:   mma.sync with ldmatrix.trans on both operands in place, three to four stages of cp.async in flight; the rows are
//         split over as many blocks as the card runs, and a second kernel adds their partial sums, in order.
// Parent: v04.
// Why:    the reduction has up to 131072 rows and dw as few as 4096 elements, so speed is that of reading x and dy: tiles as
//         wide as dw read each row once, or from L2 where it takes several, and enough blocks keep memory busy. dbias costs
//         no pass: dy's fragments are multiplied with ones. Limiter left: partial sums, written and read once more, and the
//         second launch.
// Needs:  nothing; cp.async where n and k are multiples of 16 bytes, else single elements, synchronously. A workspace where
//         the rows are split.

#include "dev/common/down_columns_tile.h"
#include "dev/gemm/mma_plan.h"
#include "dev/gemm/partial_sums.h"
#include "dev/gemm/store_tile.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::gemm {
namespace {

template <class T, class Tile>
struct Operands {
  using A = DownColumnsTile<T, Tile::kBlockM>;
  using B = DownColumnsTile<T, Tile::kBlockN>;
  static constexpr int kStageBytes = A::kBytes + B::kBytes;
};

template <class T, class P, class Tile, bool kVectors>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerSm)
    gemm_wgrad_v05_kernel(Problem p, Split split, const T* x, const T* dy, T* dw, P* dbias, float* partial) {
  using A = typename Operands<T, Tile>::A;
  using B = typename Operands<T, Tile>::B;
  constexpr int kStages = Tile::kStages, kThreads = Tile::kThreads;
  constexpr int kStageBytes = Operands<T, Tile>::kStageBytes;
  LADDER_DYN_SMEM(smem);  // kStages times: dy's columns, then x's

  // Tiles fastest: blocks that share rows run together.
  const int blocks_k = ceil_div(p.k, Tile::kBlockN);
  const int blocks_n = ceil_div(p.n, Tile::kBlockM);
  const int k0 = blockIdx.x % blocks_k * Tile::kBlockN;
  const int n0 = blockIdx.x / blocks_k % blocks_n * Tile::kBlockM;
  const int split_idx = blockIdx.x / blocks_k / blocks_n;
  const int first = split_idx * split.units_per_split * kStepTerms<T>;
  const int end = min(p.m, first + split.units_per_split * kStepTerms<T>);
  const int num_steps = ceil_div(end - first, kStepTerms<T>);

  auto fetch = [&](int step) {
    if (step < num_steps) {
      unsigned char* const as = smem + step % kStages * kStageBytes;
      const int row = first + step * kStepTerms<T>;
      A::template fetch<kThreads, kVectors>(as, dy, p.m, n0, p.n, row, end);
      B::template fetch<kThreads, kVectors>(as + A::kBytes, x, p.m, k0, p.k, row, end);
    }
    ptx::cp_async_commit();  // one group a step, empty or not, so that the count of pending groups tells the step
  };

  float acc[Tile::kWarpM / 16][Tile::kWarpN / 8][4] = {};
  float bias_sum[Tile::kWarpM / 16][4] = {};
  const bool accumulates_bias_gradient = dbias && k0 == 0 && Tile::warp_n() == 0;
  ptx::grid_dependency_wait();
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) fetch(step);
  for (int step = 0; step < num_steps; ++step) {
    ptx::cp_async_wait<kStages - 2>();
    // One barrier a step: this step's copies are visible to all, and all have left the stage that is filled next.
    __syncthreads();
    fetch(step + kStages - 1);
    const unsigned char* const as = smem + step % kStages * kStageBytes;
    multiply_step<T, Tile, A, B>(acc, as, as + A::kBytes, accumulates_bias_gradient, bias_sum);
  }

  ptx::grid_dependency_launch();
  // Accumulators go to dw, or to this split's row, through shared memory, so that a warp writes whole rows, 16 bytes a lane.
  ptx::cp_async_wait<0>();
  __syncthreads();
  float* const tile = reinterpret_cast<float*>(smem);
  put_sums<Tile>(acc, tile);
  __syncthreads();
  const bool single_split = split.splits == 1;
  const long long weights = static_cast<long long>(p.n) * p.k;
  float* const partial_row = partial + split_idx * (padded(weights) + padded(dbias ? p.n : 0));
  if (single_split) {
    store_tile<kThreads, Tile::kBlockM, Tile::kBlockN>(tile, Tile::kPitch, 0, n0, k0, p.n, p.k, Epilogue<T>{}, dw);
  } else {
    store_tile<kThreads, Tile::kBlockM, Tile::kBlockN>(tile, Tile::kPitch, 0, n0, k0, p.n, p.k, Epilogue<float>{},
                                                       partial_row);
  }
  if (!accumulates_bias_gradient || threadIdx.x % 4 != 0) return;
  void* const bias_to = single_split ? static_cast<void*>(dbias) : partial_row + padded(weights);
#pragma unroll
  for (int i = 0; i < Tile::kWarpM / 16; ++i) {
    const int n = n0 + Tile::warp_m() + 16 * i + static_cast<int>(threadIdx.x) % 32 / 4;
    if (n < p.n) store_gradient<P>(bias_to, n, bias_sum[i][0], single_split);
    if (n + 8 < p.n) store_gradient<P>(bias_to, n + 8, bias_sum[i][2], single_split);
  }
}

// dw [n, k] = dy [m, n] transposed times x [m, k].
Product product(const Problem& p) { return {.rows = p.n, .columns = p.k, .terms = p.m}; }

template <class T, class Tile>
KernelPlan<Wgrad> tile_plan(const Problem& p, const char* name, Split split) {
  const long long count = static_cast<long long>(p.n) * p.k;
  const int bias_count = p.bias ? p.n : 0;
  const auto bind = [p, split, count, bias_count](const Wgrad::Tensors& t, void* workspace) {
    auto* const partial = static_cast<float*>(workspace);
    auto* const dw = static_cast<T*>(t.dw);
    const LaunchConfig config = {
        .grid = static_cast<unsigned>(num_tiles<Tile>(product(p))) * split.splits,
        .block = Tile::kThreads,
        .dynamic_smem = Tile::smem_bytes(Operands<T, Tile>::kStageBytes, split.units_per_split),
        .overlaps_previous = true};
    return with_parameter_type<T>(p.params16, [&](auto parameter) {
      using P = decltype(parameter);
      const auto kernel = p.n % kRun<T> == 0 && p.k % kRun<T> == 0 ? gemm_wgrad_v05_kernel<T, P, Tile, true>
                                                                   : gemm_wgrad_v05_kernel<T, P, Tile, false>;
      P* const dbias = typed<P>(t.dbias);
      return with_reduce(split,
                         bind_launch(kernel, config, p, split, static_cast<const T*>(t.x), static_cast<const T*>(t.dy),
                                     dw, dbias, partial),
                         partial, count, p.k, Epilogue<T, P>{}, dw, bias_count, dbias);
    });
  };
  return {.name = name, .workspace_bytes = partial_bytes(split, count, bias_count), .bind = bind};
}

using Square = MmaTile<128, 128, 2, 2, 1, 3, 2>;
using Tall = MmaTile<128, 64, 2, 2, 1, 3, 2>;
using Flat = MmaTile<64, 128, 2, 2, 1, 3, 2>;
using Wide = MmaTile<64, 192, 2, 2, 1, 3, 2>;
using Small = MmaTile<64, 64, 2, 2, 1, 4, 3>;

std::vector<KernelPlan<Wgrad>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    const Product c = product(p);
    const int steps = ceil_div(c.terms, kStepTerms<T>);
    const SplitPlan choices[] = {plan_mma<T, Square>(c), plan_mma<T, Tall>(c), plan_mma<T, Flat>(c),
                                 plan_mma<T, Wide>(c), plan_mma<T, Small>(c)};
    return with_default<Wgrad>(
        {tile_plan<T, Square>(p, "128x128", choices[0].split), tile_plan<T, Tall>(p, "128x64", choices[1].split),
         tile_plan<T, Flat>(p, "64x128", choices[2].split), tile_plan<T, Wide>(p, "64x192", choices[3].split),
         tile_plan<T, Small>(p, "64x64", choices[4].split), tile_plan<T, Small>(p, "64x64 in two", halves(steps)),
         tile_plan<T, Small>(p, "64x64 in one", unsplit(steps))},
        fastest(choices));
  });
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Wgrad,
               {.plans = ladder::gemm::plans,
                .plan_names = {"128x128", "128x64", "64x128", "64x192", "64x64", "64x64 in two", "64x64 in one"},
                .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                .supports = ladder::gemm::one_x_only,
                .min_arch = 80})

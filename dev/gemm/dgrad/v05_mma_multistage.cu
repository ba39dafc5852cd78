// Idea:   mma.sync with ldmatrix, three to four stages of cp.async in flight, and a choice of tiles: large where rows are
//         many, small where they are few. w comes as it lies, n outermost, and ldmatrix transposes it.
// Parent: v04.
// Why:    the U-Net's layers are bound by memory, not by multiplying: what counts is that many loads and stores are under
//         way, and that all SMs have blocks. A 1x1 convolution of 64 features is a single step of the loop, so a block asks
//         for no more shared memory than its steps take, and more blocks share an SM. Limiter left: a block's loads,
//         products and stores follow one another, and only its neighbours on the SM fill the gaps.
// Needs:  nothing; cp.async where n and k are multiples of 16 bytes, else single elements, synchronously.

#include "dev/gemm/mma_tile.h"
#include "dev/gemm/output.h"

namespace ladder::gemm {
namespace {

template <class T, class Tile>
struct Operands {
  using A = AlongRowsTile<T, Tile::kBlockM>;
  using B = DownColumnsTile<T, Tile::kBlockN>;
  static constexpr int kStageBytes = A::kBytes + B::kBytes;
};

template <class T, class Tile, bool kVectors>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerSm)
    gemm_dgrad_v05_kernel(Problem p, Split split, const T* dy, const T* w, Epilogue<T> epilogue, SideBySide<T> dx,
                          float* partial) {
  using A = typename Operands<T, Tile>::A;
  using B = typename Operands<T, Tile>::B;
  constexpr int kStages = Tile::kStages, kThreads = Tile::kThreads;
  constexpr int kStageBytes = Operands<T, Tile>::kStageBytes;
  LADDER_DYN_SMEM(smem);  // kStages times: dy's rows, then w's

  // Columns fastest: blocks that share rows of dy run together.
  const int blocks_k = ceil_div(p.k, Tile::kBlockN);
  const int blocks_m = ceil_div(p.m, Tile::kBlockM);
  const int k0 = blockIdx.x % blocks_k * Tile::kBlockN;
  const int m0 = blockIdx.x / blocks_k % blocks_m * Tile::kBlockM;
  const int split_idx = blockIdx.x / blocks_k / blocks_m;
  const int first = split_idx * split.each * kStepTerms<T>;
  const int end = min(p.n, first + split.each * kStepTerms<T>);
  const int num_steps = ceil_div(end - first, kStepTerms<T>);

  auto fetch = [&](int step) {
    if (step < num_steps) {
      unsigned char* const as = smem + step % kStages * kStageBytes;
      const int term = first + step * kStepTerms<T>;
      A::template fetch<kThreads, kVectors>(as, dy, p.n, m0, p.m, term, end);
      B::template fetch<kThreads, kVectors>(as + A::kBytes, w, p.k, k0, p.k, term, end);
    }
    ptx::cp_async_commit();  // one group a step, empty or not, so that the count of pending groups tells the step
  };

  float sum[Tile::kWarpM / 16][Tile::kWarpN / 8][4] = {};
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) fetch(step);
  for (int step = 0; step < num_steps; ++step) {
    ptx::cp_async_wait<kStages - 2>();
    // One barrier a step: this step's copies are visible to all, and all have left the stage that is filled next.
    __syncthreads();
    fetch(step + kStages - 1);
    const unsigned char* const as = smem + step % kStages * kStageBytes;
    multiply_step<T, Tile, A, B>(sum, as, as + A::kBytes);
  }

  // Sums to dx by way of shared memory, so that a warp writes whole rows of 16 bytes a lane.
  ptx::cp_async_wait<0>();
  __syncthreads();
  float* const tile = reinterpret_cast<float*>(smem);
  put_sums<Tile>(sum, tile);
  __syncthreads();
  if (split.splits == 1) {
    store_tile<kThreads, Tile::kBlockM, Tile::kBlockN, Tile::kSlices>(tile, Tile::kPitch, Tile::kSlice, m0, k0, p.m,
                                                                      p.k, epilogue, dx);
  } else {
    float* const sums = partial + split_idx * padded(static_cast<long long>(p.m) * p.k);
    store_tile<kThreads, Tile::kBlockM, Tile::kBlockN, Tile::kSlices>(tile, Tile::kPitch, Tile::kSlice, m0, k0, p.m,
                                                                      p.k, Epilogue<float>{}, sums);
  }
}

template <class Tile>
int num_tiles(const Problem& p) {
  return ceil_div(p.m, Tile::kBlockM) * ceil_div(p.k, Tile::kBlockN);
}

template <class T, class Tile>
KernelPlan<Dgrad> tile_plan(const Problem& p, const char* name, Split split) {
  const long long count = static_cast<long long>(p.m) * p.k;
  const auto bind = [p, split, count](const Dgrad::Tensors& t, void* workspace) {
    auto* const partial = static_cast<float*>(workspace);
    const auto dx = output_of<T>(p, t);
    const auto kernel = p.n % kRun<T> == 0 && p.k % kRun<T> == 0 ? gemm_dgrad_v05_kernel<T, Tile, true>
                                                                 : gemm_dgrad_v05_kernel<T, Tile, false>;
    const LaunchConfig config = {.grid = static_cast<unsigned>(num_tiles<Tile>(p)) * split.splits,
                                 .block = Tile::kThreads,
                                 .dynamic_smem = Tile::smem_bytes(Operands<T, Tile>::kStageBytes, split.each)};
    return with_reduce<T>(split,
                          bind_launch(kernel, config, p, split, static_cast<const T*>(t.dy), static_cast<const T*>(t.w),
                                      epilogue_of<T>(t), dx, partial),
                          partial, count, p.k, epilogue_of<T>(t), dx);
  };
  return {.name = name, .workspace_bytes = partial_bytes(split, count), .bind = bind};
}

using Square = MmaTile<128, 128, 2, 2, 1, 3, 2>;
using Tall = MmaTile<128, 64, 2, 2, 1, 3, 3>;
using ThreeQuarters = MmaTile<64, 96, 2, 2, 1, 3, 3>;
using Small = MmaTile<64, 64, 2, 2, 1, 4, 3>;
using Low = MmaTile<32, 32, 1, 1, 4, 4, 4>;

std::vector<KernelPlan<Dgrad>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    const double row = double(p.m) * p.k;
    const int steps = ceil_div(p.n, kStepTerms<T>);
    const SplitPlan choices[] = {
        plan_mma<T, Square>(row, steps, num_tiles<Square>(p)), plan_mma<T, Tall>(row, steps, num_tiles<Tall>(p)),
        plan_mma<T, ThreeQuarters>(row, steps, num_tiles<ThreeQuarters>(p)),
        plan_mma<T, Small>(row, steps, num_tiles<Small>(p)), plan_mma<T, Low>(row, steps, num_tiles<Low>(p))};
    return with_default<Dgrad>(
        {tile_plan<T, Square>(p, "128x128", choices[0].split), tile_plan<T, Tall>(p, "128x64", choices[1].split),
         tile_plan<T, ThreeQuarters>(p, "64x96", choices[2].split), tile_plan<T, Small>(p, "64x64", choices[3].split),
         tile_plan<T, Low>(p, "32x32", choices[4].split), tile_plan<T, Small>(p, "64x64 in two", halves(steps))},
        fastest(choices));
  });
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Dgrad, {.plans = ladder::gemm::plans,
                                     .plan_names = {"128x128", "128x64", "64x96", "64x64", "32x32", "64x64 in two"},
                                     .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                     .min_arch = 80})

// Idea:   Hopper's own path, with w read where it lies. The TMA brings steps of dy and w into a ring of stages, wgmma reads
//         them there, w as an MN-major operand, as its sums run down w's columns; blocks stay, and two consumer warpgroups
//         take tiles by turns.
// Parent: v05.
// Why:    as of fprop v06: v05's blocks load, multiply and store one after the other. Limiter: memory at 64x64; at 16x16
//         and 8x8 the first load and the last store.
// Needs:  sm_90a; n and k multiples of 8 (the TMA's strides are multiples of 16 bytes); bf16 or fp16.

#include "core/early_tensors.h"
#include "dev/gemm/concat_operand.h"
#include "dev/gemm/tma_rows.h"
#include "dev/gemm/wgmma_persistent.h"

namespace ladder::gemm {
namespace {

// dx [m, k] = dy [m, n] times w [n, k].
__host__ __device__ Product product(const Problem& p) { return {.rows = p.m, .columns = p.k, .terms = p.n}; }

// A step of dy.
struct RowsOfDy {
  const ptx::TensorMap& map;

  __device__ __forceinline__ void prefetch() const { ptx::tma_prefetch(map); }
  __device__ __forceinline__ void load(unsigned char* to, ptx::Mbarrier* full, int term, int row) const {
    ptx::tma_load(to, map, full, term, row, 0);
  }
};

// A step of w: 64 of its rows, which are the terms, in boxes of 64 columns, a swizzled row each: an MN-major operand.
template <int kBlockN>
struct BoxesOfW {
  static constexpr int kColumns = 64;
  static constexpr int kBoxBytes = kStepTerms16 * kStepRowBytes;
  static constexpr int kBytes = kBlockN / kColumns * kBoxBytes;

  static __device__ __forceinline__ void load(unsigned char* to, const ptx::TensorMap& map, ptx::Mbarrier* full,
                                              int col0, int term) {
    for (int box = 0; box < kBlockN / kColumns; ++box)
      ptx::tma_load(to + box * kBoxBytes, map, full, col0 + box * kColumns, term, 0);
  }
  static __device__ __forceinline__ std::uint64_t descriptor(const unsigned char* b, int term) {
    return ptx::wgmma_descriptor_mn(b + term * kStepRowBytes, 8 * kStepRowBytes, kBoxBytes);
  }
  template <class T>
  static __device__ __forceinline__ void multiply(float (&acc)[kBlockN / 2], std::uint64_t a, std::uint64_t b,
                                                  bool accumulate) {
    ptx::wgmma_m64_b_mn<T, kBlockN>(acc, a, b, accumulate);
  }
};

template <class T, int kBlockM, int kBlockN>
using Tile = PersistentTile<kBlockM, kBlockN, kBlockM * kStepRowBytes + BoxesOfW<kBlockN>::kBytes,
                            kBlockM / 64 * WarpStore<T, kBlockN>::kBytes>;

template <class T, class Tile>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    gemm_dgrad_v06_kernel(Problem p, const __grid_constant__ ptx::TensorMap dy_map,
                          const __grid_constant__ ptx::TensorMap w_map, bool early_weights, Epilogue<T> epilogue,
                          ConcatOperand<T> dx) {
  wgmma_persistent<Tile, BoxesOfW<Tile::kBlockN>, /*kBias=*/false>(product(p), RowsOfDy{dy_map}, w_map, early_weights,
                                                                   epilogue, dx);
}

template <class Tile>
double cost(const Problem& p) {
  return persistent_ns<Tile>(num_tiles<Tile>(product(p)), ceil_div(product(p).terms, kStepTerms16));
}

template <class T, class Tile>
KernelPlan<Dgrad> tile_plan(const Problem& p, const char* name) {
  const auto bind = [p](const Dgrad::Tensors& t, void*) {
    const auto size = [](int value) { return static_cast<std::uint64_t>(value); };
    const auto dy_map =
        ptx::make_tensor_map(p.dtype, t.dy, {size(p.n), size(p.m), 1}, {kStepTerms16, Tile::kBlockM, 1});
    const auto w_map = ptx::make_tensor_map(p.dtype, t.w, {size(p.k), size(p.n), 1},
                                            {BoxesOfW<Tile::kBlockN>::kColumns, kStepTerms16, 1});
    const int blocks = std::min(num_tiles<Tile>(product(p)), backend::device().num_sms);
    return bind_launch(gemm_dgrad_v06_kernel<T, Tile>,
                       {.grid = static_cast<unsigned>(blocks),
                        .block = kWgmmaThreads,
                        .dynamic_smem = Tile::kSmemBytes,
                        .overlaps_previous = true},
                       p, dy_map, w_map, loads_early(t.w), epilogue_of<T>(t), output_of<T>(p, t));
  };
  return {.name = name, .bind = bind};
}

std::vector<KernelPlan<Dgrad>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Dgrad>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      const double costs[] = {cost<Tile<T, 128, 128>>(p), cost<Tile<T, 64, 128>>(p), cost<Tile<T, 128, 64>>(p),
                              cost<Tile<T, 64, 192>>(p), cost<Tile<T, 64, 64>>(p)};
      return with_default<Dgrad>(
          {tile_plan<T, Tile<T, 128, 128>>(p, "128x128"), tile_plan<T, Tile<T, 64, 128>>(p, "64x128"),
           tile_plan<T, Tile<T, 128, 64>>(p, "128x64"), tile_plan<T, Tile<T, 64, 192>>(p, "64x192"),
           tile_plan<T, Tile<T, 64, 64>>(p, "64x64")},
          static_cast<std::size_t>(std::ranges::min_element(costs) - costs));
    } else {
      return {};
    }
  });
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Dgrad, {.plans = ladder::gemm::plans,
                                     .plan_names = {"128x128", "64x128", "128x64", "64x192", "64x64"},
                                     .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                     .supports = ladder::gemm::rows_for_tma,
                                     .min_arch = 90,
                                     .arch_specific = true,
                                     .needs = "n and k multiples of 8"})

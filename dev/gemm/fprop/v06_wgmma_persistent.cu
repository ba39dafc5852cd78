// Idea:   Hopper's own path. The TMA brings steps of both operands into a ring of stages, wgmma reads them there, and the
//         blocks stay: one an SM, whose two consumer warpgroups take tiles by turns, so that one stores while the other
//         multiplies and the producer is already loading for the next.
// Parent: v05.
// Why:    v05's blocks load, multiply and store one after the other; only their neighbours on the SM fill the gaps.
//         Here no thread computes an address, and a tile's start and end cost nothing but for a block's first and last.
//         Limiter: memory at 64x64; at 16x16 and 8x8, with a few tiles a block, the first load and the last store.
// Needs:  sm_90a; k a multiple of 8 (the TMA's strides are multiples of 16 bytes); bf16 or fp16. Of x in two parts, a
//         multiple of 64 columns in the first.

#include "core/early_tensors.h"
#include "dev/gemm/tma_rows.h"
#include "dev/gemm/wgmma_persistent.h"

namespace ladder::gemm {
namespace {

// y [m, n] = x [m, k] times w [n, k] transposed.
__host__ __device__ Product product(const Problem& p) { return {.rows = p.m, .columns = p.n, .terms = p.k}; }

// A step of w: kBlockN of its rows, 64 terms of each, which is a K-major operand.
template <int kBlockN>
struct RowsOfW {
  static constexpr int kBytes = kBlockN * kStepRowBytes;

  static __device__ __forceinline__ void load(unsigned char* to, const ptx::TensorMap& map, ptx::Mbarrier* full,
                                              int col0, int term) {
    ptx::tma_load(to, map, full, term, col0, 0);
  }
  static __device__ __forceinline__ std::uint64_t descriptor(const unsigned char* b, int term) {
    return ptx::wgmma_descriptor(b + term * 2, 8 * kStepRowBytes);
  }
  template <class T>
  static __device__ __forceinline__ void multiply(float (&acc)[kBlockN / 2], std::uint64_t a, std::uint64_t b,
                                                  bool accumulate) {
    ptx::wgmma_m64<T, kBlockN>(acc, a, b, accumulate);
  }
};

template <class T, int kBlockM, int kBlockN>
using Tile = PersistentTile<kBlockM, kBlockN, kBlockM * kStepRowBytes + RowsOfW<kBlockN>::kBytes,
                            kBlockM / 64 * WarpStore<T, kBlockN>::kBytes>;

template <class T, class P, class Tile>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    gemm_fprop_v06_kernel(Problem p, const __grid_constant__ MapsOfX x_maps,
                          const __grid_constant__ ptx::TensorMap w_map, bool early_weights, Epilogue<T, P> epilogue,
                          T* y) {
  wgmma_persistent<Tile, RowsOfW<Tile::kBlockN>, /*kBias=*/true>(product(p), x_maps, w_map, early_weights, epilogue, y);
}

template <class Tile>
double cost(const Problem& p) {
  return persistent_ns<Tile>(num_tiles<Tile>(product(p)), ceil_div(product(p).terms, kStepTerms16));
}

template <class T, class Tile>
KernelPlan<Fprop> tile_plan(const Problem& p, const char* name) {
  const auto bind = [p](const Fprop::Tensors& t, void*) {
    const auto size = [](int value) { return static_cast<std::uint64_t>(value); };
    const MapsOfX x_maps = maps_of_x(p, t.x, t.x_rest, Tile::kBlockM);
    const auto w_map = ptx::make_tensor_map(p.dtype, t.w, {size(p.k), size(p.n), 1}, {kStepTerms16, Tile::kBlockN, 1});
    const int blocks = std::min(num_tiles<Tile>(product(p)), backend::device().num_sms);
    return with_parameter_type<T>(p.params16, [&](auto parameter) {
      using P = decltype(parameter);
      return bind_launch(gemm_fprop_v06_kernel<T, P, Tile>,
                         {.grid = static_cast<unsigned>(blocks),
                          .block = kWgmmaThreads,
                          .dynamic_smem = Tile::kSmemBytes,
                          .overlaps_previous = true},
                         p, x_maps, w_map, loads_early(t.w), epilogue_of<T, P>(p, t), static_cast<T*>(t.y));
    });
  };
  return {.name = name, .bind = bind};
}

std::vector<KernelPlan<Fprop>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Fprop>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      const double costs[] = {cost<Tile<T, 128, 128>>(p), cost<Tile<T, 128, 96>>(p), cost<Tile<T, 128, 64>>(p),
                              cost<Tile<T, 64, 192>>(p), cost<Tile<T, 64, 64>>(p)};
      return with_default<Fprop>(
          {tile_plan<T, Tile<T, 128, 128>>(p, "128x128"), tile_plan<T, Tile<T, 128, 96>>(p, "128x96"),
           tile_plan<T, Tile<T, 128, 64>>(p, "128x64"), tile_plan<T, Tile<T, 64, 192>>(p, "64x192"),
           tile_plan<T, Tile<T, 64, 64>>(p, "64x64")},
          static_cast<std::size_t>(std::ranges::min_element(costs) - costs));
    } else {
      return {};
    }
  });
}

const char* supports(const Problem& p) {
  return p.k % 8 == 0 ? full_boxes(p) : "k is not a multiple of 8, but the TMA's strides are multiples of 16 bytes";
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Fprop, {.plans = ladder::gemm::plans,
                                     .plan_names = {"128x128", "128x96", "128x64", "64x192", "64x64"},
                                     .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                     .supports = ladder::gemm::supports,
                                     .min_arch = 90,
                                     .arch_specific = true,
                                     .needs = "k a multiple of 8"})

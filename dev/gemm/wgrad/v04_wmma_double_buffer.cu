// Idea:   WMMA on tensor cores, fed by cp.async into two buffers; the rows are split over blocks, whose partial sums a second
//         kernel adds, in order.
// Parent: v03.
// Why:    v03 is limited by the FMA pipe; tensor cores multiply thirty times as fast in bf16, and then reading x and dy is
//         what is left. Both are read in place: WMMA takes either major. Limiter left: one chunk of prefetch, one tile for
//         all shapes, and WMMA's loads, which a kernel cannot schedule.
// Needs:  nothing; cp.async where n and k are multiples of 16 bytes, else single elements, synchronously. A workspace where
//         the rows are split.

#include <algorithm>

#include "dev/common/mma_operand.h"
#include "dev/common/split_plan.h"
#include "dev/gemm/partial_sums.h"
#include "dev/gemm/store_tile.h"

namespace ladder::gemm {
namespace {

constexpr int kThreads = 256;
constexpr int kBlockM = 64;   // output features
constexpr int kBlockN = 128;  // input features
constexpr int kWarpsM = 2;
constexpr int kWarpM = kBlockM / kWarpsM;                    // 32
constexpr int kWarpN = kBlockN / (kThreads / 32 / kWarpsM);  // 32
constexpr int kPitchC = kBlockN + 4;

template <class T>
struct Format {
  static constexpr int kChunk = 64 / sizeof(T);
  static constexpr int kPitchA = kBlockM + kRun<T>;  // 16 bytes of padding: eight rows start in different banks
  static constexpr int kFragmentK = sizeof(T) == 4 ? 8 : 16;
  static constexpr int kPitchB = kBlockN + kRun<T>;
  static constexpr int kStage = kChunk * (kPitchA + kPitchB);
  static constexpr std::size_t kSmemBytes =
      std::max<std::size_t>(2 * kStage * sizeof(T), kBlockM* kPitchC * sizeof(float));
  using Operand = std::conditional_t<sizeof(T) == 4, nvcuda::wmma::precision::tf32, T>;
};

template <class T, bool kVectors>
__global__ void __launch_bounds__(kThreads, 2)
    gemm_wgrad_v04_kernel(Problem p, Split split, const T* x, const T* dy, T* dw, float* dbias, float* partial) {
  namespace wmma = nvcuda::wmma;
  using F = Format<T>;
  LADDER_DYN_SMEM(smem);
  T* const stages = reinterpret_cast<T*>(smem);  // each stage: dy [m][n], then x [m][k]

  const int blocks_k = ceil_div(p.k, kBlockN);
  const int blocks_n = ceil_div(p.n, kBlockM);
  const int k0 = blockIdx.x % blocks_k * kBlockN;
  const int n0 = blockIdx.x / blocks_k % blocks_n * kBlockM;
  const int split_idx = blockIdx.x / blocks_k / blocks_n;
  const int first = split_idx * split.units_per_split * F::kChunk;
  const int end = min(p.m, first + split.units_per_split * F::kChunk);
  const int warp = threadIdx.x / 32;
  const int warp_m = warp % kWarpsM * kWarpM;
  const int warp_n = warp / kWarpsM * kWarpN;

  auto fetch_rows = [&](auto width, T* to, int pitch, const T* matrix, int first_column, int columns, int first_row) {
    constexpr int kRunsPerRow = decltype(width)::value / kRun<T>;
    const int column = threadIdx.x % kRunsPerRow * kRun<T>;
    for (int row = threadIdx.x / kRunsPerRow; row < F::kChunk; row += kThreads / kRunsPerRow) {
      copy_run<kVectors>(reinterpret_cast<unsigned char*>(to + row * pitch + column),
                         matrix + static_cast<long long>(first_row + row) * columns + first_column + column, matrix,
                         first_row + row < end ? columns - first_column - column : 0);
    }
  };
  auto fetch = [&](int chunk) {
    T* const as = stages + chunk % 2 * F::kStage;
    const int m = first + chunk * F::kChunk;
    fetch_rows(std::integral_constant<int, kBlockM>{}, as, F::kPitchA, dy, n0, p.n, m);
    fetch_rows(std::integral_constant<int, kBlockN>{}, as + F::kChunk * F::kPitchA, F::kPitchB, x, k0, p.k, m);
    ptx::cp_async_commit();
  };

  wmma::fragment<wmma::accumulator, 16, 16, F::kFragmentK, float> acc[kWarpM / 16][kWarpN / 16];
#pragma unroll
  for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
    for (int j = 0; j < kWarpN / 16; ++j) wmma::fill_fragment(acc[i][j], 0.0f);
  }

  float bias_sum = 0;  // of column n0 + threadIdx.x
  const int bias_column = threadIdx.x;
  const bool accumulates_bias_gradient = dbias && k0 == 0 && bias_column < kBlockM;
  const int num_chunks = ceil_div(end - first, F::kChunk);
  fetch(0);
  for (int t = 0; t < num_chunks; ++t) {
    // Fetch ahead into the buffer that the barrier at the end of the last chunk set free.
    if (t + 1 < num_chunks) {
      fetch(t + 1);
      ptx::cp_async_wait<1>();
    } else {
      ptx::cp_async_wait<0>();
    }
    __syncthreads();

    const T* const as = stages + t % 2 * F::kStage;
    const T* const bs = as + F::kChunk * F::kPitchA;
#pragma unroll
    for (int kk = 0; kk < F::kChunk; kk += F::kFragmentK) {
      wmma::fragment<wmma::matrix_a, 16, 16, F::kFragmentK, typename F::Operand, wmma::col_major> a[kWarpM / 16];
#pragma unroll
      for (int i = 0; i < kWarpM / 16; ++i) {
        wmma::load_matrix_sync(a[i], as + kk * F::kPitchA + warp_m + 16 * i, F::kPitchA);
      }
#pragma unroll
      for (int j = 0; j < kWarpN / 16; ++j) {
        wmma::fragment<wmma::matrix_b, 16, 16, F::kFragmentK, typename F::Operand, wmma::row_major> b;
        wmma::load_matrix_sync(b, bs + kk * F::kPitchB + warp_n + 16 * j, F::kPitchB);
#pragma unroll
        for (int i = 0; i < kWarpM / 16; ++i) wmma::mma_sync(acc[i][j], a[i], b, acc[i][j]);
      }
    }
    if (accumulates_bias_gradient) {
      for (int m = 0; m < F::kChunk; ++m) bias_sum += to_float(as[m * F::kPitchA + bias_column]);
    }
    __syncthreads();
  }

  float* const tile = reinterpret_cast<float*>(smem);
#pragma unroll
  for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
    for (int j = 0; j < kWarpN / 16; ++j) {
      wmma::store_matrix_sync(tile + (warp_m + 16 * i) * kPitchC + warp_n + 16 * j, acc[i][j], kPitchC,
                              wmma::mem_row_major);
    }
  }
  __syncthreads();
  const bool single_split = split.splits == 1;
  const long long weights = static_cast<long long>(p.n) * p.k;
  float* const partial_row = partial + split_idx * (padded(weights) + padded(dbias ? p.n : 0));
  if (single_split) {
    store_tile<kThreads, kBlockM, kBlockN>(tile, kPitchC, 0, n0, k0, p.n, p.k, Epilogue<T>{}, dw);
  } else {
    store_tile<kThreads, kBlockM, kBlockN>(tile, kPitchC, 0, n0, k0, p.n, p.k, Epilogue<float>{}, partial_row);
  }
  if (accumulates_bias_gradient && n0 + bias_column < p.n)
    (single_split ? dbias : partial_row + padded(weights))[n0 + bias_column] = bias_sum;
}

template <class T>
KernelPlan<Wgrad> split_plan(const Problem& p, const char* name, Split split) {
  const long long count = static_cast<long long>(p.n) * p.k;
  const int bias_count = p.bias ? p.n : 0;
  const auto bind = [p, split, count, bias_count](const Wgrad::Tensors& t, void* workspace) {
    auto* const partial = static_cast<float*>(workspace);
    auto* const dw = static_cast<T*>(t.dw);
    const auto kernel =
        p.n % kRun<T> == 0 && p.k % kRun<T> == 0 ? gemm_wgrad_v04_kernel<T, true> : gemm_wgrad_v04_kernel<T, false>;
    const unsigned tiles = static_cast<unsigned>(ceil_div(p.n, kBlockM)) * ceil_div(p.k, kBlockN);
    return with_reduce<T>(
        split,
        bind_launch(kernel, {.grid = tiles * split.splits, .block = kThreads, .dynamic_smem = Format<T>::kSmemBytes}, p,
                    split, static_cast<const T*>(t.x), static_cast<const T*>(t.dy), dw, t.dbias, partial),
        partial, count, p.k, {}, dw, bias_count, t.dbias);
  };
  return {.name = name, .workspace_bytes = partial_bytes(split, count, bias_count), .bind = bind};
}

std::vector<KernelPlan<Wgrad>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Wgrad>> {
    using T = decltype(element);
    const int tiles = ceil_div(p.n, kBlockM) * ceil_div(p.k, kBlockN);
    const int units = ceil_div(p.m, Format<T>::kChunk);
    const SplitPlan best = plan_split(double(p.n) * p.k, units, tiles,
                                      {.unit_ns = 400, .finish_ns = 300, .start_ns = 2000, .blocks_per_sm = 2});
    return {split_plan<T>(p, "rows split over blocks", best.split), split_plan<T>(p, "rows in two", halves(units)),
            split_plan<T>(p, "rows in one piece", unsplit(units))};
  });
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Wgrad,
               {.plans = ladder::gemm::plans,
                .plan_names = {"rows split over blocks", "rows in two", "rows in one piece"},
                .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                .supports = ladder::gemm::plain_only,
                .min_arch = 80,
                .error_growth = 4})  // in tf32, WMMA adds four products at a time, truncating each time

// Idea:   WMMA on tensor cores, fed by cp.async into two buffers: the next chunk is on its way while this one multiplies.
// Parent: v03.
// Why:    v03 is limited by the FMA pipe; tensor cores multiply thirty times as fast in bf16, and then the layer is bound by
//         memory. cp.async goes straight to shared memory and zero-fills tails for free. Limiter left: one chunk of
//         look-ahead is 24 KB a block at most, one tile serves all shapes, and WMMA's loads are not ours to schedule.
// Needs:  nothing; cp.async where k is a multiple of 16 bytes, else single elements, synchronously.

#include <algorithm>

#include "dev/gemm/store_tile.h"
#include "dev/common/mma_operand.h"

namespace ladder::gemm {
namespace {

constexpr int kThreads = 256;
constexpr int kBlockM = 128;
constexpr int kBlockN = 64;
constexpr int kWarpsM = 4;
constexpr int kWarpM = kBlockM / kWarpsM;                    // 32
constexpr int kWarpN = kBlockN / (kThreads / 32 / kWarpsM);  // 32
constexpr int kPitchC = kBlockN + 4;

template <class T>
struct Format {
  static constexpr int kChunk = 64 / sizeof(T);
  static constexpr int kPitch = kChunk + kRun<T>;  // 16 bytes of padding: eight rows start in different banks
  static constexpr int kFragmentK = sizeof(T) == 4 ? 8 : 16;
  static constexpr int kStage = (kBlockM + kBlockN) * kPitch;
  static constexpr std::size_t kSmemBytes =
      std::max<std::size_t>(2 * kStage * sizeof(T), kBlockM* kPitchC * sizeof(float));
  using Operand = std::conditional_t<sizeof(T) == 4, nvcuda::wmma::precision::tf32, T>;
};

template <class T, bool kVectors>
__global__ void __launch_bounds__(kThreads, 2)
    gemm_fprop_v04_kernel(Problem p, const T* x, const T* w, Epilogue<T> epilogue, T* y) {
  namespace wmma = nvcuda::wmma;
  using F = Format<T>;
  LADDER_DYN_SMEM(smem);
  T* const stages = reinterpret_cast<T*>(smem);  // each stage: x [row][k], then w [row][k]

  const int blocks_n = ceil_div(p.n, kBlockN);
  const int n0 = blockIdx.x % blocks_n * kBlockN;
  const int m0 = blockIdx.x / blocks_n * kBlockM;
  const int warp = threadIdx.x / 32;
  const int warp_m = warp % kWarpsM * kWarpM;
  const int warp_n = warp / kWarpsM * kWarpN;

  constexpr int kRunsPerRow = F::kChunk / kRun<T>;
  constexpr int kRowStep = kThreads / kRunsPerRow;
  const int load_row = threadIdx.x / kRunsPerRow;
  const int load_k = threadIdx.x % kRunsPerRow * kRun<T>;
  auto fetch_rows = [&](T* to, const T* matrix, int first_row, int rows, int count, int k) {
    for (int row = load_row; row < count; row += kRowStep) {
      const T* const from = matrix + static_cast<long long>(first_row + row) * p.k + k;
      copy_run<kVectors>(reinterpret_cast<unsigned char*>(to + row * F::kPitch + load_k), from, matrix,
                         first_row + row < rows ? p.k - k : 0);
    }
  };
  auto fetch = [&](int chunk) {
    T* const as = stages + chunk % 2 * F::kStage;
    const int k = chunk * F::kChunk + load_k;
    fetch_rows(as, x, m0, p.m, kBlockM, k);
    fetch_rows(as + kBlockM * F::kPitch, w, n0, p.n, kBlockN, k);
    ptx::cp_async_commit();
  };

  wmma::fragment<wmma::accumulator, 16, 16, F::kFragmentK, float> sum[kWarpM / 16][kWarpN / 16];
#pragma unroll
  for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
    for (int j = 0; j < kWarpN / 16; ++j) wmma::fill_fragment(sum[i][j], 0.0f);
  }

  const int num_chunks = ceil_div(p.k, F::kChunk);
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
    const T* const bs = as + kBlockM * F::kPitch;
#pragma unroll
    for (int kk = 0; kk < F::kChunk; kk += F::kFragmentK) {
      wmma::fragment<wmma::matrix_a, 16, 16, F::kFragmentK, typename F::Operand, wmma::row_major> a[kWarpM / 16];
#pragma unroll
      for (int i = 0; i < kWarpM / 16; ++i) {
        wmma::load_matrix_sync(a[i], as + (warp_m + 16 * i) * F::kPitch + kk, F::kPitch);
      }
#pragma unroll
      for (int j = 0; j < kWarpN / 16; ++j) {
        wmma::fragment<wmma::matrix_b, 16, 16, F::kFragmentK, typename F::Operand, wmma::col_major> b;
        wmma::load_matrix_sync(b, bs + (warp_n + 16 * j) * F::kPitch + kk, F::kPitch);
#pragma unroll
        for (int i = 0; i < kWarpM / 16; ++i) wmma::mma_sync(sum[i][j], a[i], b, sum[i][j]);
      }
    }
    __syncthreads();
  }

  float* const tile = reinterpret_cast<float*>(smem);
#pragma unroll
  for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
    for (int j = 0; j < kWarpN / 16; ++j) {
      wmma::store_matrix_sync(tile + (warp_m + 16 * i) * kPitchC + warp_n + 16 * j, sum[i][j], kPitchC,
                              wmma::mem_row_major);
    }
  }
  __syncthreads();
  store_tile<kThreads, kBlockM, kBlockN>(tile, kPitchC, 0, m0, n0, p.m, p.n, epilogue, y);
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    const auto kernel = p.k % kRun<T> == 0 ? gemm_fprop_v04_kernel<T, true> : gemm_fprop_v04_kernel<T, false>;
    const unsigned blocks = static_cast<unsigned>(ceil_div(p.m, kBlockM)) * ceil_div(p.n, kBlockN);
    ladder::launch(kernel, {.grid = blocks, .block = kThreads, .dynamic_smem = Format<T>::kSmemBytes}, stream, p,
                   static_cast<const T*>(t.x), static_cast<const T*>(t.w), epilogue_of<T>(p, t), static_cast<T*>(t.y));
  });
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Fprop,
               {.launch = ladder::gemm::launch,
                .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                .min_arch = 80,
                .error_growth = 4})  // in tf32, WMMA adds four products at a time, truncating each time

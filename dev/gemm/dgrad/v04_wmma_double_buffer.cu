// Idea:   WMMA on tensor cores, fed by cp.async into two buffers: the next chunk is on its way while this one multiplies.
// Parent: v03.
// Why:    v03 is limited by the FMA pipe; tensor cores multiply thirty times as fast in bf16, and then the layer is bound by
//         memory. w stays as it lies: WMMA takes B in either order. Limiter left: one chunk of look-ahead, one tile for all
//         shapes, and WMMA's loads are not ours to schedule.
// Needs:  nothing; cp.async where n and k are multiples of 16 bytes, else single elements, synchronously.

#include <algorithm>

#include "dev/gemm/store_tile.h"
#include "dev/common/mma_operand.h"
#include "dev/gemm/output.h"

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
  static constexpr int kPitchB = kBlockN + kRun<T>;
  static constexpr int kStage = kBlockM * kPitch + kChunk * kPitchB;
  static constexpr std::size_t kSmemBytes =
      std::max<std::size_t>(2 * kStage * sizeof(T), kBlockM* kPitchC * sizeof(float));
  using Operand = std::conditional_t<sizeof(T) == 4, nvcuda::wmma::precision::tf32, T>;
};

template <class T, bool kVectors>
__global__ void __launch_bounds__(kThreads, 2)
    gemm_dgrad_v04_kernel(Problem p, const T* dy, const T* w, Epilogue<T> epilogue, SideBySide<T> dx) {
  namespace wmma = nvcuda::wmma;
  using F = Format<T>;
  LADDER_DYN_SMEM(smem);
  T* const stages = reinterpret_cast<T*>(smem);  // each stage: dy [row][n], then w [n][column]

  const int blocks_k = ceil_div(p.k, kBlockN);
  const int k0 = blockIdx.x % blocks_k * kBlockN;
  const int m0 = blockIdx.x / blocks_k * kBlockM;
  const int warp = threadIdx.x / 32;
  const int warp_m = warp % kWarpsM * kWarpM;
  const int warp_n = warp / kWarpsM * kWarpN;

  constexpr int kRunsPerRow = F::kChunk / kRun<T>;
  constexpr int kRowStep = kThreads / kRunsPerRow;
  constexpr int kRunsPerRowB = kBlockN / kRun<T>;
  constexpr int kRowStepB = kThreads / kRunsPerRowB;
  auto fetch = [&](int chunk) {
    T* const as = stages + chunk % 2 * F::kStage;
    T* const bs = as + kBlockM * F::kPitch;
    const int load_n = threadIdx.x % kRunsPerRow * kRun<T>;
    const int n = chunk * F::kChunk + load_n;
    for (int row = threadIdx.x / kRunsPerRow; row < kBlockM; row += kRowStep) {
      copy_run<kVectors>(reinterpret_cast<unsigned char*>(as + row * F::kPitch + load_n),
                         dy + static_cast<long long>(m0 + row) * p.n + n, dy, m0 + row < p.m ? p.n - n : 0);
    }
    const int load_k = threadIdx.x % kRunsPerRowB * kRun<T>;
    for (int row = threadIdx.x / kRunsPerRowB; row < F::kChunk; row += kRowStepB) {
      const int w_row = chunk * F::kChunk + row;
      copy_run<kVectors>(reinterpret_cast<unsigned char*>(bs + row * F::kPitchB + load_k),
                         w + static_cast<long long>(w_row) * p.k + k0 + load_k, w, w_row < p.n ? p.k - k0 - load_k : 0);
    }
    ptx::cp_async_commit();
  };

  wmma::fragment<wmma::accumulator, 16, 16, F::kFragmentK, float> sum[kWarpM / 16][kWarpN / 16];
#pragma unroll
  for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
    for (int j = 0; j < kWarpN / 16; ++j) wmma::fill_fragment(sum[i][j], 0.0f);
  }

  const int num_chunks = ceil_div(p.n, F::kChunk);
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
        wmma::fragment<wmma::matrix_b, 16, 16, F::kFragmentK, typename F::Operand, wmma::row_major> b;
        wmma::load_matrix_sync(b, bs + kk * F::kPitchB + warp_n + 16 * j, F::kPitchB);
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
  store_tile<kThreads, kBlockM, kBlockN>(tile, kPitchC, 0, m0, k0, p.m, p.k, epilogue, dx);
}

void launch(const Problem& p, const Dgrad::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    const auto kernel =
        p.n % kRun<T> == 0 && p.k % kRun<T> == 0 ? gemm_dgrad_v04_kernel<T, true> : gemm_dgrad_v04_kernel<T, false>;
    const unsigned blocks = static_cast<unsigned>(ceil_div(p.m, kBlockM)) * ceil_div(p.k, kBlockN);
    ladder::launch(kernel, {.grid = blocks, .block = kThreads, .dynamic_smem = Format<T>::kSmemBytes}, stream, p,
                   static_cast<const T*>(t.dy), static_cast<const T*>(t.w), epilogue_of<T>(t), output_of<T>(p, t));
  });
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Dgrad,
               {.launch = ladder::gemm::launch,
                .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                .min_arch = 80,
                .error_growth = 4})  // in tf32, WMMA adds four products at a time, truncating each time

// Idea:   the same implicit GEMM on tensor cores, through nvcuda::wmma: 16-bit (or tf32) operands, fp32 sums.
// Parent: v05.
// Why:    a tensor core does in one instruction what took v05's FMA pipe 128 and more; the product's ceiling rises
//         sixteenfold. Limiter left: one buffer, so each K step waits for its loads (long scoreboard at the barrier).
// Needs:  nothing; 16-byte loads where a channel row is a multiple of 16 bytes, else single elements.

#include <algorithm>

#include "dev/conv3x3/implicit_gemm.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kThreads = 256;
constexpr int kBlockM = 128;
constexpr int kBlockN = 64;
constexpr int kWarpsM = 4;
constexpr int kWarpM = kBlockM / kWarpsM;                    // 32: two fragments
constexpr int kWarpN = kBlockN / (kThreads / 32 / kWarpsM);  // 32: two fragments
constexpr int kFragments = 2;
static_assert(kWarpM == 16 * kFragments && kWarpN == 16 * kFragments, "a warp holds 2 x 2 fragments");

// Tile parameters of an element type. A K step is 64 bytes of channels. Rows are padded by 16 bytes, so that the eight
// rows of a fragment's column start in different banks.
template <class T>
struct Format {
  static constexpr int kVec = 16 / sizeof(T);
  static constexpr int kChunkC = 64 / sizeof(T);
  static constexpr int kPitch = kChunkC + kVec;
  static constexpr int kFragmentK = sizeof(T) == 4 ? 8 : 16;
  using Operand = std::conditional_t<sizeof(T) == 4, nvcuda::wmma::precision::tf32, T>;
};

constexpr int kPitchC = kBlockN + 4;
template <class T>
constexpr std::size_t kSmemBytes = std::max((kBlockM + kBlockN) * Format<T>::kPitch * sizeof(T),
                                            kBlockM* kPitchC * sizeof(float));

template <class T, bool kVectors>
__global__ void __launch_bounds__(kThreads, 2)
    conv3x3_fprop_v06_kernel(Problem p, const T* x, const T* w, const float* bias, T* y) {
  namespace wmma = nvcuda::wmma;
  using F = Format<T>;
  LADDER_DYN_SMEM(smem);
  T* const as = reinterpret_cast<T*>(smem);  // [pixel][c]
  T* const bs = as + kBlockM * F::kPitch;    // [k][c]

  const int blocks_k = ceil_div(p.k, kBlockN);
  const int k0 = blockIdx.x % blocks_k * kBlockN;
  const int m0 = blockIdx.x / blocks_k * kBlockM;
  const int warp = threadIdx.x / 32;
  const int warp_m = warp % kWarpsM * kWarpM;
  const int warp_n = warp / kWarpsM * kWarpN;

  // A thread fetches 16 bytes of each of its rows: two rows of A, 64 rows apart, and one of B.
  constexpr int kLoadsPerRow = F::kChunkC / F::kVec;
  constexpr int kRowStep = kThreads / kLoadsPerRow;
  constexpr int kLoadsA = kBlockM / kRowStep;
  constexpr int kLoadsB = kBlockN / kRowStep;
  const int load_c = threadIdx.x % kLoadsPerRow * F::kVec;
  const int load_row = threadIdx.x / kLoadsPerRow;
  PixelRow rows[kLoadsA];
#pragma unroll
  for (int i = 0; i < kLoadsA; ++i) rows[i] = pixel_row(p, m0 + load_row + i * kRowStep);
  auto copy_run = [&](T* to, const T* from, bool valid, int c) {
    if constexpr (kVectors) {
      *reinterpret_cast<uint4*>(to) = valid && c < p.c ? *reinterpret_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
    } else {
      for (int j = 0; j < F::kVec; ++j) to[j] = valid && c + j < p.c ? from[j] : from_float<T>(0.0f);
    }
  };

  wmma::fragment<wmma::accumulator, 16, 16, F::kFragmentK, float> sum[kFragments][kFragments];
#pragma unroll
  for (int i = 0; i < kFragments; ++i) {
#pragma unroll
    for (int j = 0; j < kFragments; ++j) wmma::fill_fragment(sum[i][j], 0.0f);
  }

  ptx::grid_dependency_wait();
  const int num_steps = 9 * ceil_div(p.c, F::kChunkC);
  KStep step;
  for (int t = 0; t < num_steps; ++t, step.advance(F::kChunkC)) {
    const int c = step.c0 + load_c;
    const int offset = tap_offset(p, step.rs) + c;
#pragma unroll
    for (int i = 0; i < kLoadsA; ++i) {
      copy_run(as + (load_row + i * kRowStep) * F::kPitch + load_c, x + (rows[i].base + offset),
               rows[i].taps >> step.rs & 1, c);
    }
#pragma unroll
    for (int i = 0; i < kLoadsB; ++i) {
      const int k = k0 + load_row + i * kRowStep;
      copy_run(bs + (load_row + i * kRowStep) * F::kPitch + load_c, w + (k * 9 + step.rs) * p.c + c, k < p.k, c);
    }
    __syncthreads();

#pragma unroll
    for (int kk = 0; kk < F::kChunkC; kk += F::kFragmentK) {
      wmma::fragment<wmma::matrix_a, 16, 16, F::kFragmentK, typename F::Operand, wmma::row_major> a[kFragments];
      wmma::fragment<wmma::matrix_b, 16, 16, F::kFragmentK, typename F::Operand, wmma::col_major> b[kFragments];
#pragma unroll
      for (int i = 0; i < kFragments; ++i) {
        wmma::load_matrix_sync(a[i], as + (warp_m + 16 * i) * F::kPitch + kk, F::kPitch);
        wmma::load_matrix_sync(b[i], bs + (warp_n + 16 * i) * F::kPitch + kk, F::kPitch);
      }
#pragma unroll
      for (int i = 0; i < kFragments; ++i) {
#pragma unroll
        for (int j = 0; j < kFragments; ++j) wmma::mma_sync(sum[i][j], a[i], b[j], sum[i][j]);
      }
    }
    __syncthreads();
  }

  ptx::grid_dependency_launch();
  // NOTE: the layout of a fragment is unspecified, so sums reach y by way of shared memory.
  float* const tile = reinterpret_cast<float*>(smem);
#pragma unroll
  for (int i = 0; i < kFragments; ++i) {
#pragma unroll
    for (int j = 0; j < kFragments; ++j) {
      wmma::store_matrix_sync(tile + (warp_m + 16 * i) * kPitchC + warp_n + 16 * j, sum[i][j], kPitchC,
                              wmma::mem_row_major);
    }
  }
  __syncthreads();
  store_tile<kThreads, kBlockM, kBlockN>(p, tile, kPitchC, m0, k0, bias, y);
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  const unsigned blocks =
      static_cast<unsigned>(ceil_div(static_cast<int>(p.pixels()), kBlockM)) * ceil_div(p.k, kBlockN);
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    auto kernel = p.c % Format<T>::kVec == 0 ? conv3x3_fprop_v06_kernel<T, true> : conv3x3_fprop_v06_kernel<T, false>;
    ladder::launch(kernel,
                   {.grid = blocks, .block = kThreads, .dynamic_smem = kSmemBytes<T>, .overlaps_previous = true},
                   stream, p, static_cast<const T*>(t.x), static_cast<const T*>(t.w), t.bias, static_cast<T*>(t.y));
  });
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Fprop,
               {.launch = ladder::conv3x3::launch,
                .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                .supports = ladder::conv3x3::plain_only,
                .min_arch = 80,
                .error_growth = 4})  // in tf32, WMMA adds four products at a time, truncating each time

// Idea:   WMMA fed by cp.async into two buffers: the next K step's operands are on their way while this one multiplies.
// Parent: v06.
// Why:    v06 holds its tensor cores still for every load, and its loads pass through registers. cp.async goes straight
//         to shared memory and zero-fills the halo for free. Limiter left: one step of look-ahead hides less than the
//         latency of L2, and WMMA's loads are not ours to schedule.
// Needs:  nothing; cp.async where a channel row is a multiple of 16 bytes, else single elements, synchronously.

#include <algorithm>

#include "dev/conv3x3/implicit_gemm.h"
#include "dev/ptx/cp_async.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kThreads = 256;
constexpr int kBlockM = 128;
constexpr int kWarpsM = 4;
constexpr int kWarpsN = 2;
constexpr int kFragmentsM = kBlockM / kWarpsM / 16;
constexpr int kStages = 2;

template <class T>
struct Format {
  static constexpr int kVec = 16 / sizeof(T);
  static constexpr int kChunkC = 64 / sizeof(T);
  static constexpr int kPitch = kChunkC + kVec;  // 16 bytes of padding: eight rows start in different banks
  static constexpr int kFragmentK = sizeof(T) == 4 ? 8 : 16;
  using Operand = std::conditional_t<sizeof(T) == 4, nvcuda::wmma::precision::tf32, T>;
};

template <class T, int kBlockN>
constexpr std::size_t kSmemBytes = std::max(kStages*(kBlockM + kBlockN) * Format<T>::kPitch * sizeof(T),
                                            kBlockM*(kBlockN + 4) * sizeof(float));

template <class T, int kBlockN, bool kVectors>
__global__ void __launch_bounds__(kThreads, 2)
    conv3x3_fprop_v07_kernel(Problem p, const T* x, const T* w, const float* bias, T* y) {
  namespace wmma = nvcuda::wmma;
  using F = Format<T>;
  constexpr int kWarpM = kBlockM / kWarpsM;
  constexpr int kWarpN = kBlockN / kWarpsN;
  constexpr int kFragmentsN = kWarpN / 16;
  constexpr int kStageElements = (kBlockM + kBlockN) * F::kPitch;
  LADDER_DYN_SMEM(smem);
  T* const stages = reinterpret_cast<T*>(smem);  // each stage: A [pixel][c], then B [k][c]

  const int blocks_k = ceil_div(p.k, kBlockN);
  const int k0 = blockIdx.x % blocks_k * kBlockN;
  const int m0 = blockIdx.x / blocks_k * kBlockM;
  const int warp = threadIdx.x / 32;
  const int warp_m = warp % kWarpsM * kWarpM;
  const int warp_n = warp / kWarpsM * kWarpN;

  constexpr int kLoadsPerRow = F::kChunkC / F::kVec;
  constexpr int kRowStep = kThreads / kLoadsPerRow;
  constexpr int kLoadsA = kBlockM / kRowStep;
  constexpr int kLoadsB = kBlockN / kRowStep;
  const int load_c = threadIdx.x % kLoadsPerRow * F::kVec;
  const int load_row = threadIdx.x / kLoadsPerRow;
  PixelRow rows[kLoadsA];
#pragma unroll
  for (int i = 0; i < kLoadsA; ++i) rows[i] = pixel_row(p, m0 + load_row + i * kRowStep);

  // `fallback` is any mapped address: an invalid copy reads nothing from it.
  auto copy_run = [&](T* to, const T* from, const T* fallback, bool valid, int c) {
    if constexpr (kVectors) {
      ptx::cp_async<16>(to, valid && c < p.c ? from : fallback, valid && c < p.c);
    } else {
      for (int j = 0; j < F::kVec; ++j) to[j] = valid && c + j < p.c ? from[j] : from_float<T>(0.0f);
    }
  };
  auto fetch = [&](const KStep& step, int stage) {
    T* const as = stages + stage * kStageElements;
    T* const bs = as + kBlockM * F::kPitch;
    const int c = step.c0 + load_c;
    const int offset = tap_offset(p, step.rs) + c;
#pragma unroll
    for (int i = 0; i < kLoadsA; ++i) {
      copy_run(as + (load_row + i * kRowStep) * F::kPitch + load_c, x + (rows[i].base + offset), x,
               rows[i].taps >> step.rs & 1, c);
    }
#pragma unroll
    for (int i = 0; i < kLoadsB; ++i) {
      const int k = k0 + load_row + i * kRowStep;
      copy_run(bs + (load_row + i * kRowStep) * F::kPitch + load_c, w + (k * 9 + step.rs) * p.c + c, w, k < p.k, c);
    }
    ptx::cp_async_commit();
  };

  wmma::fragment<wmma::accumulator, 16, 16, F::kFragmentK, float> sum[kFragmentsM][kFragmentsN];
#pragma unroll
  for (int i = 0; i < kFragmentsM; ++i) {
#pragma unroll
    for (int j = 0; j < kFragmentsN; ++j) wmma::fill_fragment(sum[i][j], 0.0f);
  }

  const int num_steps = 9 * ceil_div(p.c, F::kChunkC);
  KStep step;
  fetch(step, 0);
  for (int t = 0; t < num_steps; ++t) {
    // Fetch ahead into the buffer that the barrier at the end of the last step set free.
    if (t + 1 < num_steps) {
      step.advance(F::kChunkC);
      fetch(step, (t + 1) % kStages);
      ptx::cp_async_wait<1>();
    } else {
      ptx::cp_async_wait<0>();
    }
    __syncthreads();

    const T* const as = stages + t % kStages * kStageElements;
    const T* const bs = as + kBlockM * F::kPitch;
#pragma unroll
    for (int kk = 0; kk < F::kChunkC; kk += F::kFragmentK) {
      wmma::fragment<wmma::matrix_a, 16, 16, F::kFragmentK, typename F::Operand, wmma::row_major> a[kFragmentsM];
#pragma unroll
      for (int i = 0; i < kFragmentsM; ++i) {
        wmma::load_matrix_sync(a[i], as + (warp_m + 16 * i) * F::kPitch + kk, F::kPitch);
      }
#pragma unroll
      for (int j = 0; j < kFragmentsN; ++j) {
        wmma::fragment<wmma::matrix_b, 16, 16, F::kFragmentK, typename F::Operand, wmma::col_major> b;
        wmma::load_matrix_sync(b, bs + (warp_n + 16 * j) * F::kPitch + kk, F::kPitch);
#pragma unroll
        for (int i = 0; i < kFragmentsM; ++i) wmma::mma_sync(sum[i][j], a[i], b, sum[i][j]);
      }
    }
    __syncthreads();
  }

  constexpr int kPitchC = kBlockN + 4;
  float* const tile = reinterpret_cast<float*>(smem);
#pragma unroll
  for (int i = 0; i < kFragmentsM; ++i) {
#pragma unroll
    for (int j = 0; j < kFragmentsN; ++j) {
      wmma::store_matrix_sync(tile + (warp_m + 16 * i) * kPitchC + warp_n + 16 * j, sum[i][j], kPitchC,
                              wmma::mem_row_major);
    }
  }
  __syncthreads();
  store_tile<kThreads, kBlockM, kBlockN>(p, tile, kPitchC, m0, k0, bias, y);
}

template <class T, int kBlockN>
KernelPlan<Fprop> tile_plan(const Problem& p, const char* name) {
  const auto bind = [p](const Fprop::Tensors& t, void*) {
    const unsigned blocks =
        static_cast<unsigned>(ceil_div(static_cast<int>(p.pixels()), kBlockM)) * ceil_div(p.k, kBlockN);
    const auto kernel = p.c % Format<T>::kVec == 0 ? conv3x3_fprop_v07_kernel<T, kBlockN, true>
                                                   : conv3x3_fprop_v07_kernel<T, kBlockN, false>;
    return bind_launch(kernel, {.grid = blocks, .block = kThreads, .dynamic_smem = kSmemBytes<T, kBlockN>}, p,
                       static_cast<const T*>(t.x), static_cast<const T*>(t.w), t.bias, static_cast<T*>(t.y));
  };
  return {.name = name, .bind = bind};
}

// 128 output channels a block where they fill it, for each pixel is then fetched half as often. Not in tf32, whose
// fragments of that tile do not fit 128 registers.
std::vector<KernelPlan<Fprop>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    std::vector<KernelPlan<Fprop>> plans = {tile_plan<T, 64>(p, "128x64")};
    if constexpr (sizeof(T) == 2) {
      plans.push_back(tile_plan<T, 128>(p, "128x128"));
      if (p.k % 128 == 0 && p.pixels() >= 16384) return with_default<Fprop>(std::move(plans), 1);
    }
    return plans;
  });
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Fprop,
               {.plans = ladder::conv3x3::plans,
                .plan_names = {"128x64", "128x128"},
                .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                .supports = ladder::conv3x3::plain_only,
                .min_arch = 80,
                .error_growth = 4})  // in tf32, WMMA adds four products at a time, truncating each time

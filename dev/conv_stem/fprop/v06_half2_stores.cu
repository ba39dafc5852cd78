// Idea:   wider pieces on both ways: a lane has two neighbouring terms and stores them as one half2; the tile's sums meet in
//         shared memory and leave in 16-byte stores; B's fragments are loaded one ahead of the products. The published
//         rounds 7, 9 and 13.
// Parent: v05.
// Why:    v05 stores 28 halves a lane and chunk, one by one, and y in 64-byte runs. Limiter left: A is gathered, converted and
//         stored once for each of the seven windows that a pixel of x is in, and each load has its own bounds.
// Needs:  allow_tf32, and factors within FP16's range; 16-byte stores where k is a multiple of 4.

#include <algorithm>

#include "dev/conv_stem/implicit_gemm.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv_stem {
namespace {

constexpr int kPairs = kChunk / 2;
constexpr int kRowStep = kGemmThreads / kPairs;
constexpr int kRowsA = kBlockM / kRowStep;  // a thread's, of one pair of terms
constexpr int kRowsB = kBlockN / kRowStep;
constexpr int kSumPitch = kBlockN + 4;  // floats
constexpr std::size_t kSmemBytes = std::max(2 * kChunkHalves * sizeof(__half), kBlockM* kSumPitch * sizeof(float));

// multiply_chunk() with B's next fragment on its way while this one multiplies.
__device__ __forceinline__ void multiply_pipelined(Accumulator (&sum)[kFragmentsM][kFragmentsN], const __half* a) {
  namespace wmma = nvcuda::wmma;
  const __half* const b = a + (kBlockM + warp_n()) * kChunkPitch;
  constexpr int kSteps = kChunk / 16 * kFragmentsN;
  FragmentA rows[kFragmentsM];
  FragmentB columns[2];
  wmma::load_matrix_sync(columns[0], b, kChunkPitch);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (step % kFragmentsN == 0) {
#pragma unroll
      for (int m = 0; m < kFragmentsM; ++m) {
        wmma::load_matrix_sync(rows[m], a + (warp_m() + 16 * m) * kChunkPitch + step / kFragmentsN * 16, kChunkPitch);
      }
    }
    if (step + 1 < kSteps) {
      const int next = step + 1;
      wmma::load_matrix_sync(columns[next % 2], b + next % kFragmentsN * 16 * kChunkPitch + next / kFragmentsN * 16,
                             kChunkPitch);
    }
#pragma unroll
    for (int m = 0; m < kFragmentsM; ++m) {
      Accumulator& d = sum[m][step % kFragmentsN];
      wmma::mma_sync(d, rows[m], columns[step % 2], d);
    }
  }
}

__global__ void __launch_bounds__(kGemmThreads, 2)
    conv_stem_fprop_v06_kernel(Problem p, const float* x, const float* w, const float* bias, float* y) {
  LADDER_DYN_SMEM(smem);
  LADDER_SHARED(Window, windows, [kBlockM]);
  auto* const chunks = reinterpret_cast<__half*>(smem);
  const int m0 = blockIdx.x * kBlockM;
  const int k0 = blockIdx.y * kBlockN;
  const int pair = threadIdx.x % kPairs * 2;  // its first term of a chunk
  const int first_row = threadIdx.x / kPairs;
  if (threadIdx.x < kBlockM) windows[threadIdx.x] = window_of(p, m0 + threadIdx.x);
  __syncthreads();

  float2 a[kRowsA];
  float2 b[kRowsB];
  const auto fetch = [&](int term0) {
    const Term term[2] = {term_of(p, term0 + pair), term_of(p, term0 + pair + 1)};
#pragma unroll
    for (int n = 0; n < kRowsA; ++n) {
      const Window window = windows[first_row + n * kRowStep];
      a[n] = {gather(p, x, window, term[0]), gather(p, x, window, term[1])};
    }
#pragma unroll
    for (int n = 0; n < kRowsB; ++n) {
      const int k = k0 + first_row + n * kRowStep;
      b[n] = {weight(p, w, k, term0 + pair), weight(p, w, k, term0 + pair + 1)};
    }
  };
  const auto store = [&](__half* chunk) {
    const auto pair_ptr = [&](int row) { return reinterpret_cast<__half2*>(chunk + row * kChunkPitch + pair); };
#pragma unroll
    for (int n = 0; n < kRowsA; ++n) *pair_ptr(first_row + n * kRowStep) = __floats2half2_rn(a[n].x, a[n].y);
#pragma unroll
    for (int n = 0; n < kRowsB; ++n) *pair_ptr(kBlockM + first_row + n * kRowStep) = __floats2half2_rn(b[n].x, b[n].y);
  };

  Accumulator sum[kFragmentsM][kFragmentsN];
  clear(sum);
  ptx::grid_dependency_wait();
  fetch(0);
  store(chunks);
  __syncthreads();
  const int num_chunks = ceil_div(p.filter(), kChunk);
  for (int t = 0; t < num_chunks; ++t) {
    if (t + 1 < num_chunks) fetch((t + 1) * kChunk);
    multiply_pipelined(sum, chunks + t % 2 * kChunkHalves);
    if (t + 1 < num_chunks) store(chunks + (t + 1) % 2 * kChunkHalves);
    __syncthreads();
  }

  // The tile's sums, in place of the chunks.
  ptx::grid_dependency_launch();
  float* const tile = reinterpret_cast<float*>(smem);
#pragma unroll
  for (int m = 0; m < kFragmentsM; ++m) {
#pragma unroll
    for (int n = 0; n < kFragmentsN; ++n) {
      nvcuda::wmma::store_matrix_sync(tile + (warp_m() + 16 * m) * kSumPitch + warp_n() + 16 * n, sum[m][n], kSumPitch,
                                      nvcuda::wmma::mem_row_major);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kBlockM * kBlockN / 4; i += kGemmThreads) {
    const int row = i / (kBlockN / 4);
    const int k = k0 + i % (kBlockN / 4) * 4;
    if (m0 + row >= p.n * p.out_h() * p.out_w() || k >= p.k) continue;
    const float* const from = tile + row * kSumPitch + k - k0;
    float* const to = y + static_cast<long long>(m0 + row) * p.k + k;
    float v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = from[j] + (bias && k + j < p.k ? bias[k + j] : 0.0f);
    if (p.k % 4 == 0) {
      *reinterpret_cast<float4*>(to) = {v[0], v[1], v[2], v[3]};
    } else {
      for (int j = 0; j < 4 && k + j < p.k; ++j) to[j] = v[j];
    }
  }
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  ladder::launch(conv_stem_fprop_v06_kernel,
                 {.grid = gemm_grid(p), .block = kGemmThreads, .dynamic_smem = kSmemBytes, .overlaps_previous = true},
                 stream, p, t.x, t.w, t.bias, t.y);
}

}  // namespace
}  // namespace ladder::conv_stem

LADDER_VERSION(ladder::conv_stem::Fprop, {.launch = ladder::conv_stem::launch,
                                          .dtypes = {ladder::Dtype::f32},
                                          .supports = ladder::conv_stem::tf32_only,
                                          .min_arch = 80,
                                          .needs = "allow_tf32"})

// Idea:   places are computed once. A block's 128 windows are decomposed before the first chunk and kept in shared memory; a
//         lane's term, which all its elements of a chunk share, once a chunk. The published rounds 5, 6, 8 and 10.
// Parent: v04.
// Why:    v04 divides five times for each element that it loads, some forty instructions beside one load and a sixteenth of
//         a WMMA. (In NHWC y needs no divisions at all: row m of the product is row m of y.) Limiter left: 2-byte stores to
//         shared memory, and a warp's sums that go out 16 x 16 at a time in 4-byte stores.
// Needs:  allow_tf32, and factors within FP16's range.

#include "dev/conv_stem/implicit_gemm.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv_stem {
namespace {

constexpr int kWarps = kGemmThreads / 32;
constexpr int kRowsA = kBlockM / kWarps;  // a lane's: its warp's rows, one of a chunk's 32 terms
constexpr int kRowsB = kBlockN / kWarps;

__global__ void __launch_bounds__(kGemmThreads, 2)
    conv_stem_fprop_v05_kernel(Problem p, const float* x, const float* w, const float* bias, float* y) {
  LADDER_DYN_SMEM(smem);
  auto* const chunks = reinterpret_cast<__half*>(smem);
  auto* const patches = reinterpret_cast<float*>(chunks + 2 * kChunkHalves);
  LADDER_SHARED(Window, windows, [kBlockM]);
  const int m0 = blockIdx.x * kBlockM;
  const int k0 = blockIdx.y * kBlockN;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (threadIdx.x < kBlockM) windows[threadIdx.x] = window_of(p, m0 + threadIdx.x);
  __syncthreads();

  float a[kRowsA];
  float b[kRowsB];
  const auto fetch = [&](int term0) {
    const Term term = term_of(p, term0 + lane);
#pragma unroll
    for (int n = 0; n < kRowsA; ++n) a[n] = gather(p, x, windows[warp + n * kWarps], term);
#pragma unroll
    for (int n = 0; n < kRowsB; ++n) b[n] = weight(p, w, k0 + warp + n * kWarps, term0 + lane);
  };
  const auto store = [&](__half* chunk) {
#pragma unroll
    for (int n = 0; n < kRowsA; ++n) chunk[(warp + n * kWarps) * kChunkPitch + lane] = __float2half_rn(a[n]);
#pragma unroll
    for (int n = 0; n < kRowsB; ++n) {
      chunk[(kBlockM + warp + n * kWarps) * kChunkPitch + lane] = __float2half_rn(b[n]);
    }
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
    multiply_chunk(sum, chunks + t % 2 * kChunkHalves);
    if (t + 1 < num_chunks) store(chunks + (t + 1) % 2 * kChunkHalves);
    __syncthreads();
  }

  ptx::grid_dependency_launch();
  store_fragments(p, sum, patches + warp * kPatchFloats, m0, k0, bias, y);
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  ladder::launch(
      conv_stem_fprop_v05_kernel,
      {.grid = gemm_grid(p), .block = kGemmThreads, .dynamic_smem = gemm_smem_bytes(2), .overlaps_previous = true},
      stream, p, t.x, t.w, t.bias, t.y);
}

}  // namespace
}  // namespace ladder::conv_stem

LADDER_VERSION(ladder::conv_stem::Fprop, {.launch = ladder::conv_stem::launch,
                                          .dtypes = {ladder::Dtype::f32},
                                          .supports = ladder::conv_stem::tf32_only,
                                          .min_arch = 80,
                                          .needs = "allow_tf32"})

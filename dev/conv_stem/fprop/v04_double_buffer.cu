// Idea:   two chunks in shared memory: the next one's elements are loaded into registers while this one multiplies, and
//         rounded and stored after that. The published rounds 3 and 12.
// Parent: v03.
// Why:    v03's tensor cores wait for every chunk's loads. cp.async, which round 3 took, cannot convert on its way; registers
//         can. Limiter left: the divisions, of which each element has five.
// Needs:  allow_tf32, and factors within FP16's range.
// Spills: some 20 registers of places, at the 128 that leave room for two blocks an SM; v05 has none.

#include "dev/conv_stem/implicit_gemm.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv_stem {
namespace {

constexpr int kWarps = kGemmThreads / 32;
constexpr int kRowsA = kBlockM / kWarps;  // a lane's: its warp's rows, one of a chunk's 32 terms
constexpr int kRowsB = kBlockN / kWarps;

__global__ void __launch_bounds__(kGemmThreads, 2)
    conv_stem_fprop_v04_kernel(Problem p, const float* x, const float* w, const float* bias, float* y) {
  LADDER_DYN_SMEM(smem);
  auto* const chunks = reinterpret_cast<__half*>(smem);
  auto* const patches = reinterpret_cast<float*>(chunks + 2 * kChunkHalves);
  const int m0 = blockIdx.x * kBlockM;
  const int k0 = blockIdx.y * kBlockN;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  float a[kRowsA];
  float b[kRowsB];
  const auto fetch = [&](int term0) {
#pragma unroll
    for (int n = 0; n < kRowsA; ++n) {
      a[n] = gather(p, x, window_of(p, m0 + warp + n * kWarps), term_of(p, term0 + lane));
    }
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
      conv_stem_fprop_v04_kernel,
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

// Idea:   the convolution as an implicit GEMM on tensor cores: fp32 elements are rounded to FP16 on their way into shared
//         memory, WMMA multiplies them and adds in fp32. The published rounds 2, 4 and 11.
// Parent: v02.
// Why:    a tensor core does in one instruction what took v02's fp32 pipe 128. Limiter left: every element is gathered on its
//         own, with five divisions for its offset, and nothing is fetched while tensor cores work.
// Needs:  allow_tf32, and factors within FP16's range (up to 65504; TF32's is fp32's).

#include "dev/conv_stem/implicit_gemm.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv_stem {
namespace {

__global__ void __launch_bounds__(kGemmThreads, 2)
    conv_stem_fprop_v03_kernel(Problem p, const float* x, const float* w, const float* bias, float* y) {
  LADDER_DYN_SMEM(smem);
  auto* const chunk = reinterpret_cast<__half*>(smem);
  auto* const patches = reinterpret_cast<float*>(chunk + kChunkHalves);
  __half* const b = chunk + kBlockM * kChunkPitch;
  const int m0 = blockIdx.x * kBlockM;
  const int k0 = blockIdx.y * kBlockN;
  Accumulator sum[kFragmentsM][kFragmentsN];
  clear(sum);

  ptx::grid_dependency_wait();
  for (int term0 = 0; term0 < p.filter(); term0 += kChunk) {
    for (int n = threadIdx.x; n < kBlockM * kChunk; n += kGemmThreads) {
      const int row = n / kChunk;
      const int term = n % kChunk;
      const float value = gather(p, x, window_of(p, m0 + row), term_of(p, term0 + term));
      chunk[row * kChunkPitch + term] = __float2half_rn(value);
    }
    for (int n = threadIdx.x; n < kBlockN * kChunk; n += kGemmThreads) {
      const int row = n / kChunk;
      const int term = n % kChunk;
      b[row * kChunkPitch + term] = __float2half_rn(weight(p, w, k0 + row, term0 + term));
    }
    __syncthreads();
    multiply_chunk(sum, chunk);
    __syncthreads();
  }

  ptx::grid_dependency_launch();
  store_fragments(p, sum, patches + threadIdx.x / 32 * kPatchFloats, m0, k0, bias, y);
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  ladder::launch(
      conv_stem_fprop_v03_kernel,
      {.grid = gemm_grid(p), .block = kGemmThreads, .dynamic_smem = gemm_smem_bytes(1), .overlaps_previous = true},
      stream, p, t.x, t.w, t.bias, t.y);
}

}  // namespace
}  // namespace ladder::conv_stem

LADDER_VERSION(ladder::conv_stem::Fprop, {.launch = ladder::conv_stem::launch,
                                          .dtypes = {ladder::Dtype::f32},
                                          .supports = ladder::conv_stem::tf32_only,
                                          .min_arch = 80,
                                          .needs = "allow_tf32"})

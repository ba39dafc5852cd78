// Idea:   gradients in 16 bits are read as the layers left them, by the same threads and in the same order as v02's.
// Parent: v02.
// Why:    most of a model's gradients come in 16 bits: a pass that widens them to fp32 moves 6 bytes for each, and reading
//         them again 4 where 2 do. The sum has the bits of v02's over widened ones. Limiter: memory, and the second
//         kernel's launch.
// Needs:  a multiple of four of them; a workspace of an fp32 for 8192 parameters.

#include "dev/common/block_sum.h"
#include "dev/common/quads.h"
#include "dev/common/wide.h"
#include "dev/optimizer/update.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::optimizer {
namespace {

constexpr int kThreads = 256;
constexpr int kQuadsPerThread = 8;
constexpr int kSumThreads = 1024;

// Adds the squares of the thread's quads from `begin` to `end`; `from` holds those from `begin` on.
template <class T>
__device__ void add_squares(float& sum, const void* from, unsigned first, unsigned begin, unsigned end) {
  Quad<T> loaded[kQuadsPerThread];
#pragma unroll
  for (int i = 0; i < kQuadsPerThread; ++i) {
    const unsigned quad = first + i * kThreads;
    if (begin <= quad && quad < end) loaded[i] = static_cast<const Quad<T>*>(from)[quad - begin];
  }
#pragma unroll
  for (int i = 0; i < kQuadsPerThread; ++i) {
    const unsigned quad = first + i * kThreads;
    if (quad < begin || end <= quad) continue;
    float values[kQuad];
    unpack_quad<T>(loaded[i], values);
#pragma unroll
    for (const float value : values) sum += value * value;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    optimizer_norm_v03_parts_kernel(unsigned count, unsigned mixed, const void* d, const float* g, float* sums) {
  ptx::grid_dependency_wait();
  constexpr unsigned kQuadsPerBlock = kThreads * kQuadsPerThread;
  const unsigned begin = blockIdx.x * kQuadsPerBlock;
  const unsigned first = begin + threadIdx.x;
  const unsigned mixed_quads = mixed / kQuad;
  const unsigned quads = count / kQuad;
  float sum = 0;
  if (begin < mixed_quads) add_squares<T>(sum, d, first, 0, mixed_quads);
  if (mixed_quads < begin + kQuadsPerBlock) add_squares<float>(sum, g, first, mixed_quads, quads);
  // The last parameters, which are no whole quad.
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x < count % kQuad) {
    const float value = g[kQuad * quads - mixed + threadIdx.x];
    sum += value * value;
  }
  ptx::grid_dependency_launch();
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kSumThreads)
    optimizer_norm_v03_sum_kernel(unsigned blocks, bool clip, const float* sums, Norm::Tensors t) {
  ptx::grid_dependency_wait();
  float sum = 0;
  for (unsigned i = threadIdx.x; i < blocks; i += kSumThreads) sum += sums[i];
  ptx::grid_dependency_launch();
  sum = block_sum<kSumThreads>(sum);
  if (threadIdx.x == 0) finish_norm(sum, clip, *t.hyper, t.norm, t.scale);
}

unsigned num_blocks(const Problem& p) { return stream_blocks((p.p + 3) / kQuad, kThreads, kQuadsPerThread); }

std::size_t workspace_bytes(const Problem& p) { return sizeof(float) * num_blocks(p); }

const char* supports(const Problem& p) { return p.mixed % kQuad != 0 ? "gradients in d, no whole quads" : nullptr; }

void launch(const Problem& p, const Norm::Tensors& t, void* workspace, Stream stream) {
  auto* const sums = static_cast<float*>(workspace);
  with_storage_type(p.dtype, [&](auto element) {
    ladder::launch(optimizer_norm_v03_parts_kernel<decltype(element)>,
                   {.grid = num_blocks(p), .block = kThreads, .overlaps_previous = true}, stream, p.p, p.mixed, t.d,
                   t.g, sums);
  });
  ladder::launch(optimizer_norm_v03_sum_kernel, {.grid = 1, .block = kSumThreads, .overlaps_previous = true}, stream,
                 num_blocks(p), p.clip, sums, t);
}

}  // namespace
}  // namespace ladder::optimizer

LADDER_VERSION(ladder::optimizer::Norm, {.launch = ladder::optimizer::launch,
                                         .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                         .supports = ladder::optimizer::supports,
                                         .workspace_bytes = ladder::optimizer::workspace_bytes,
                                         .needs = "a multiple of 4 gradients in d"})

// Idea:   every block adds the squares of 8192 parameters, eight vectors of sixteen bytes a thread in flight together; a second
//         kernel of one block adds the blocks' sums.
// Parent: v01.
// Why:    all SMs, whole lines, 128 bytes a thread on their way. What a block adds depends on the number of parameters alone,
//         so the sum is the same on every card. Limiter: memory, and the second kernel's launch.
// Needs:  nothing; a workspace of an fp32 for 8192 parameters.

#include "dev/common/block_sum.h"
#include "dev/common/wide.h"
#include "dev/optimizer/update.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::optimizer {
namespace {

constexpr int kThreads = 256;
constexpr int kVectorsPerThread = 8;
constexpr int kSumThreads = 1024;

__global__ void __launch_bounds__(kThreads)
    optimizer_norm_v02_parts_kernel(unsigned count, const float* g, float* sums) {
  const unsigned first = blockIdx.x * (kThreads * kVectorsPerThread) + threadIdx.x;
  const unsigned vectors = count / 4;
  ptx::grid_dependency_wait();
  uint4 loaded[kVectorsPerThread];
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    if (first + i * kThreads < vectors) loaded[i] = load_wide<4>(g, first + i * kThreads);
  }
  ptx::grid_dependency_launch();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    if (first + i * kThreads >= vectors) break;
    float values[4];
    to_floats<float, 4>(loaded[i], values);
#pragma unroll
    for (const float value : values) sum += value * value;
  }
  // The last parameters, which are no whole vector.
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x < count % 4) {
    const float value = g[4 * vectors + threadIdx.x];
    sum += value * value;
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kSumThreads)
    optimizer_norm_v02_sum_kernel(unsigned blocks, bool clip, const float* sums, Norm::Tensors t) {
  ptx::grid_dependency_wait();
  float sum = 0;
  for (unsigned i = threadIdx.x; i < blocks; i += kSumThreads) sum += sums[i];
  ptx::grid_dependency_launch();
  sum = block_sum<kSumThreads>(sum);
  if (threadIdx.x == 0) finish_norm(sum, clip, *t.hyper, t.norm, t.scale);
}

const char* supports(const Problem& p) { return p.mixed > 0 ? "gradients in d" : nullptr; }

unsigned num_blocks(const Problem& p) { return stream_blocks((p.p + 3) / 4, kThreads, kVectorsPerThread); }

std::size_t workspace_bytes(const Problem& p) { return sizeof(float) * num_blocks(p); }

void launch(const Problem& p, const Norm::Tensors& t, void* workspace, Stream stream) {
  auto* const sums = static_cast<float*>(workspace);
  ladder::launch(optimizer_norm_v02_parts_kernel, {.grid = num_blocks(p), .block = kThreads, .overlaps_previous = true},
                 stream, p.p, t.g, sums);
  ladder::launch(optimizer_norm_v02_sum_kernel, {.grid = 1, .block = kSumThreads, .overlaps_previous = true}, stream,
                 num_blocks(p), p.clip, sums, t);
}

}  // namespace
}  // namespace ladder::optimizer

LADDER_VERSION(ladder::optimizer::Norm, {.launch = ladder::optimizer::launch,
                                         .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                         .supports = ladder::optimizer::supports,
                                         .workspace_bytes = ladder::optimizer::workspace_bytes})

// Idea:   one block adds all squares.
// Parent: none.
// Why:    it is the simplest sum in a fixed order. Limiter: one SM of 132, with single loads of four bytes.
// Needs:  nothing.

#include "dev/common/block_sum.h"
#include "dev/optimizer/update.h"

namespace ladder::optimizer {
namespace {

constexpr int kThreads = 1024;

__global__ void optimizer_norm_v01_kernel(unsigned count, bool clip, Norm::Tensors t) {
  float sum = 0;
  for (unsigned i = threadIdx.x; i < count; i += kThreads) sum += t.g[i] * t.g[i];
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) finish_norm(sum, clip, *t.hyper, t.norm, t.scale);
}

void launch(const Problem& p, const Norm::Tensors& t, void*, Stream stream) {
  ladder::launch(optimizer_norm_v01_kernel, {.grid = 1, .block = kThreads}, stream, p.p, p.clip, t);
}

}  // namespace
}  // namespace ladder::optimizer

LADDER_VERSION(ladder::optimizer::Norm, {.launch = ladder::optimizer::launch,
                                         .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

// Idea:   one block adds all squares.
// Parent: none.
// Why:    it is the simplest sum in a fixed order. Limiter: one SM of 132, with single loads of four bytes.
// Needs:  nothing.

#include "dev/common/block_sum.h"
#include "dev/optimizer/update.h"

namespace ladder::optimizer {
namespace {

constexpr int kThreads = 1024;

template <class T>
__global__ void optimizer_norm_v01_kernel(unsigned count, unsigned mixed, bool clip, Norm::Tensors t) {
  float sum = 0;
  for (unsigned i = threadIdx.x; i < count; i += kThreads) {
    const float g = gradient_of<T>(i, mixed, t.d, t.g);
    sum += g * g;
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) finish_norm(sum, clip, *t.hyper, t.norm, t.scale);
}

void launch(const Problem& p, const Norm::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    ladder::launch(optimizer_norm_v01_kernel<decltype(element)>, {.grid = 1, .block = kThreads}, stream, p.p, p.mixed,
                   p.clip, t);
  });
}

}  // namespace
}  // namespace ladder::optimizer

LADDER_VERSION(ladder::optimizer::Norm, {.launch = ladder::optimizer::launch,
                                         .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

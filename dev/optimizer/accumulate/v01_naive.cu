// Idea:   one thread takes one parameter, straight from the formula.
// Parent: none.
// Why:    it is the definition. Limiter: 2 or 4 bytes in flight a thread, too few to keep memory busy.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/common/wide.h"
#include "dev/optimizer/optimizer.h"

namespace ladder::optimizer {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void optimizer_accumulate_v01_kernel(Problem p, const T* d, float* g) {
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= p.p) return;
  const float weight = 1.0f / static_cast<float>(p.parts);
  g[i] = p.first ? weight * to_float(d[i]) : g[i] + weight * to_float(d[i]);
}

void launch(const Problem& p, const Accumulate::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    ladder::launch(optimizer_accumulate_v01_kernel<T>, {.grid = stream_blocks(p.p, kThreads, 1), .block = kThreads},
                   stream, p, static_cast<const T*>(t.d), t.g);
  });
}

}  // namespace
}  // namespace ladder::optimizer

LADDER_VERSION(ladder::optimizer::Accumulate, {.launch = ladder::optimizer::launch,
                                               .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

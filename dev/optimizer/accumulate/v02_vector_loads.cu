// Idea:   four quads of parameters a thread, loaded together: sixteen bytes of g, eight or sixteen of d.
// Parent: v01.
// Why:    6 bytes a parameter for bf16 are all there is to it: whole lines, and enough of them in flight. Limiter: memory.
// Needs:  nothing.

#include "dev/common/quads.h"
#include "dev/common/wide.h"
#include "dev/optimizer/optimizer.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::optimizer {
namespace {

constexpr int kThreads = 256;
constexpr int kQuadsPerThread = 4;

template <class T, bool kFirst>
__global__ void __launch_bounds__(kThreads)
    optimizer_accumulate_v02_kernel(unsigned count, float weight, const T* d, float* g) {
  const unsigned first = blockIdx.x * (kThreads * kQuadsPerThread) + threadIdx.x;
  const unsigned quads = count / 4;
  ptx::grid_dependency_wait();
  Quad<T> added[kQuadsPerThread];
  uint4 before[kQuadsPerThread];
#pragma unroll
  for (int i = 0; i < kQuadsPerThread; ++i) {
    const unsigned quad = first + i * kThreads;
    if (quad >= quads) break;
    added[i] = reinterpret_cast<const Quad<T>*>(d)[quad];
    if constexpr (!kFirst) before[i] = load_wide<4>(g, quad);
  }
  ptx::grid_dependency_launch();
#pragma unroll
  for (int i = 0; i < kQuadsPerThread; ++i) {
    const unsigned quad = first + i * kThreads;
    if (quad >= quads) break;
    float sum[4] = {};
    float values[4];
    if constexpr (!kFirst) to_floats<float, 4>(before[i], sum);
    unpack_quad<T>(added[i], values);
#pragma unroll
    for (int v = 0; v < 4; ++v) sum[v] = kFirst ? weight * values[v] : sum[v] + weight * values[v];
    store_wide<4>(g, quad, from_floats<float, 4>(sum));
  }

  // The last parameters, which are no whole quad.
  const unsigned tail = 4 * quads + first;
  if (tail < count) g[tail] = kFirst ? weight * to_float(d[tail]) : g[tail] + weight * to_float(d[tail]);
}

void launch(const Problem& p, const Accumulate::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    auto kernel = p.first ? optimizer_accumulate_v02_kernel<T, true> : optimizer_accumulate_v02_kernel<T, false>;
    ladder::launch(
        kernel,
        {.grid = stream_blocks((p.p + 3) / 4, kThreads, kQuadsPerThread), .block = kThreads, .overlaps_previous = true},
        stream, p.p, 1.0f / static_cast<float>(p.parts), static_cast<const T*>(t.d), t.g);
  });
}

}  // namespace
}  // namespace ladder::optimizer

LADDER_VERSION(ladder::optimizer::Accumulate, {.launch = ladder::optimizer::launch,
                                               .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

// Idea:   sixteen bytes a load and a store, four loads of a thread in flight together.
// Parent: v01.
// Why:    whole lines with few instructions, and 64 bytes a thread on their way cover memory's latency. Limiter: memory.
// Needs:  nothing; single elements where the tensor is no multiple of sixteen bytes.

#include "dev/add/add.h"
#include "dev/common/wide.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::add {
namespace {

constexpr int kThreads = 256;
constexpr int kVectorsPerThread = 2;

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) add_residual_v02_kernel(unsigned count, const T* a, const T* b, T* y) {
  const unsigned first = blockIdx.x * (kThreads * kVectorsPerThread) + threadIdx.x;
  ptx::grid_dependency_wait();
  Bits<T, kWidth> a_loaded[kVectorsPerThread];
  Bits<T, kWidth> b_loaded[kVectorsPerThread];
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    if (first + i * kThreads >= count) break;
    a_loaded[i] = load_wide<kWidth>(a, first + i * kThreads);
    b_loaded[i] = load_wide<kWidth>(b, first + i * kThreads);
  }
  ptx::grid_dependency_launch();
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    if (first + i * kThreads >= count) break;
    float sum[kWidth];
    float term[kWidth];
    to_floats<T, kWidth>(a_loaded[i], sum);
    to_floats<T, kWidth>(b_loaded[i], term);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) sum[v] += term[v];
    store_wide<kWidth>(y, first + i * kThreads, from_floats<T, kWidth>(sum));
  }
}

void launch(const Problem& p, const Residual::Tensors& t, void*, Stream stream) {
  dispatch_width(p.dtype, whole_vectors(p.elements(), p.dtype), [&](auto element, auto width) {
    using T = decltype(element);
    const std::int64_t count = p.elements() / width;
    ladder::launch(
        add_residual_v02_kernel<T, width>,
        {.grid = stream_blocks(count, kThreads, kVectorsPerThread), .block = kThreads, .overlaps_previous = true},
        stream, count, static_cast<const T*>(t.a), static_cast<const T*>(t.b), static_cast<T*>(t.y));
  });
}

}  // namespace
}  // namespace ladder::add

LADDER_VERSION(ladder::add::Residual,
               {.launch = ladder::add::launch, .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

// Idea:   sixteen bytes a load and a store; a thread has four loads in flight together.
// Parent: v01.
// Why:    whole lines with few instructions, and 64 bytes a thread on their way cover memory's latency. Limiter: memory.
// Needs:  nothing; single elements where c or k is no multiple of sixteen bytes.

#include "dev/concat/concat_operand.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::concat {
namespace {

constexpr int kThreads = 256;
constexpr int kVectorsPerThread = 4;

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) concat_join_v02_kernel(ConcatVectors layout, const T* a, const T* b, T* y) {
  const unsigned first = blockIdx.x * (kThreads * kVectorsPerThread) + threadIdx.x;
  ptx::grid_dependency_wait();
  Bits<T, kWidth> loaded[kVectorsPerThread];
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    if (first + i * kThreads >= layout.count) break;
    const SourceVector source = layout.source_of(first + i * kThreads);
    loaded[i] = load_wide<kWidth>(source.in_b ? b : a, source.index);
  }
  ptx::grid_dependency_launch();
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    if (first + i * kThreads < layout.count) store_wide<kWidth>(y, first + i * kThreads, loaded[i]);
  }
}

void launch(const Problem& p, const Join::Tensors& t, void*, Stream stream) {
  dispatch_width(p.dtype, both_in_vectors(p), [&](auto element, auto width) {
    using T = decltype(element);
    const ConcatVectors layout = concat_vectors(p, width);
    ladder::launch(concat_join_v02_kernel<T, width>,
                   {.grid = stream_blocks(layout.count, kThreads, kVectorsPerThread),
                    .block = kThreads,
                    .overlaps_previous = true},
                   stream, layout, static_cast<const T*>(t.a), static_cast<const T*>(t.b), static_cast<T*>(t.y));
  });
}

}  // namespace
}  // namespace ladder::concat

LADDER_VERSION(ladder::concat::Join, {.launch = ladder::concat::launch,
                                      .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

// Idea:   sixteen bytes a load and a store; a thread has four loads in flight together.
// Parent: v01.
// Why:    whole lines with few instructions, and 64 bytes a thread on their way cover memory's latency. Limiter: memory.
// Needs:  nothing; single elements where c or k is no multiple of sixteen bytes.

#include "dev/concat/concat_operand.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::concat {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 4;  // units of a thread

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) concat_join_v02_kernel(Sides at, const T* a, const T* b, T* y) {
  const unsigned first = blockIdx.x * (kThreads * kEach) + threadIdx.x;
  ptx::grid_dependency_wait();
  Bits<T, kWidth> unit[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (first + i * kThreads >= at.count) break;
    const Place from = at.place(first + i * kThreads);
    unit[i] = load_wide<kWidth>(from.in_b ? b : a, from.index);
  }
  ptx::grid_dependency_launch();
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (first + i * kThreads < at.count) store_wide<kWidth>(y, first + i * kThreads, unit[i]);
  }
}

void launch(const Problem& p, const Join::Tensors& t, void*, Stream stream) {
  dispatch_width(p.dtype, both_whole(p), [&](auto element, auto width) {
    using T = decltype(element);
    const Sides at = sides(p, width);
    ladder::launch(concat_join_v02_kernel<T, width>,
                   {.grid = stream_blocks(at.count, kThreads, kEach), .block = kThreads, .overlaps_previous = true},
                   stream, at, static_cast<const T*>(t.a), static_cast<const T*>(t.b), static_cast<T*>(t.y));
  });
}

}  // namespace
}  // namespace ladder::concat

LADDER_VERSION(ladder::concat::Join, {.launch = ladder::concat::launch,
                                      .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

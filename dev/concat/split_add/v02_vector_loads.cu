// Idea:   sixteen bytes a load and a store; a thread has four to eight loads under way together.
// Parent: v01.
// Why:    whole lines with few instructions, and the sum costs no pass of its own: db is written once and never read. Limiter: memory.
// Needs:  nothing; single elements where c or k is no multiple of sixteen bytes.

#include "dev/concat/sides.h"

namespace ladder::concat {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 4;  // units of a thread

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    concat_split_add_v02_kernel(Sides at, const T* dy, const T* e, T* da, T* db) {
  const unsigned first = blockIdx.x * (kThreads * kEach) + threadIdx.x;
  Bits<T, kWidth> unit[kEach];
  Bits<T, kWidth> other[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (first + i * kThreads >= at.count) break;
    unit[i] = load_wide<kWidth>(dy, first + i * kThreads);
    const Place to = at.place(first + i * kThreads);
    if (to.in_b) other[i] = load_wide<kWidth>(e, to.index);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (first + i * kThreads >= at.count) break;
    const Place to = at.place(first + i * kThreads);
    if (!to.in_b) {
      store_wide<kWidth>(da, to.index, unit[i]);
      continue;
    }
    float sum[kWidth];
    float term[kWidth];
    to_floats<T, kWidth>(unit[i], sum);
    to_floats<T, kWidth>(other[i], term);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) sum[v] += term[v];
    store_wide<kWidth>(db, to.index, from_floats<T, kWidth>(sum));
  }
}

void launch(const Problem& p, const SplitAdd::Tensors& t, void*, Stream stream) {
  dispatch_width(p.dtype, both_whole(p), [&](auto element, auto width) {
    using T = decltype(element);
    const Sides at = sides(p, width);
    ladder::launch(concat_split_add_v02_kernel<T, width>,
                   {.grid = stream_blocks(at.count, kThreads, kEach), .block = kThreads}, stream, at,
                   static_cast<const T*>(t.dy), static_cast<const T*>(t.e), static_cast<T*>(t.da),
                   static_cast<T*>(t.db));
  });
}

}  // namespace
}  // namespace ladder::concat

LADDER_VERSION(ladder::concat::SplitAdd, {.launch = ladder::concat::launch,
                                          .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

// Idea:   sixteen bytes a load; a thread loads two vectors of the smaller image and stores a quarter of each to its four places.
// Parent: v01.
// Why:    the smaller image is read once, and one index serves four stores. Limiter: memory, four fifths of it stores.
// Needs:  nothing; single elements where a pixel is no multiple of sixteen bytes.

#include "dev/common/wide.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/resample/windows.h"

namespace ladder::resample {
namespace {

constexpr int kThreads = 256;
constexpr int kVectorsPerThread = 2;

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) resample_pool_backward_v02_kernel(Windows windows, const T* dy, T* dx) {
  const unsigned first = blockIdx.x * (kThreads * kVectorsPerThread) + threadIdx.x;
  ptx::grid_dependency_wait();
  Bits<T, kWidth> pixel[kVectorsPerThread];
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    if (first + i * kThreads < windows.count) pixel[i] = load_wide<kWidth>(dy, first + i * kThreads);
  }
  ptx::grid_dependency_launch();
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    const unsigned index = first + i * kThreads;
    if (index >= windows.count) break;
    const unsigned corner = windows.first(index);
    float values[kWidth];
    to_floats<T, kWidth>(pixel[i], values);
#pragma unroll
    for (float& value : values) value *= 0.25f;
    const Bits<T, kWidth> quarter = from_floats<T, kWidth>(values);
    store_wide<kWidth>(dx, corner, quarter);
    store_wide<kWidth>(dx, corner + windows.right(), quarter);
    store_wide<kWidth>(dx, corner + windows.below(), quarter);
    store_wide<kWidth>(dx, corner + windows.below() + windows.right(), quarter);
  }
}

void launch(const Problem& p, const PoolBackward::Tensors& t, void*, Stream stream) {
  dispatch_width(p.dtype, whole_vectors(p.c, p.dtype), [&](auto element, auto width) {
    using T = decltype(element);
    const Windows layout = windows(p, width);
    ladder::launch(resample_pool_backward_v02_kernel<T, width>,
                   {.grid = stream_blocks(layout.count, kThreads, kVectorsPerThread),
                    .block = kThreads,
                    .overlaps_previous = true},
                   stream, layout, static_cast<const T*>(t.dy), static_cast<T*>(t.dx));
  });
}

}  // namespace
}  // namespace ladder::resample

LADDER_VERSION(ladder::resample::PoolBackward,
               {.launch = ladder::resample::launch,
                .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

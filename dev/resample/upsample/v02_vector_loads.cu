// Idea:   sixteen bytes a load; a thread loads two vectors of the smaller image and stores each to its four places.
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
__global__ void __launch_bounds__(kThreads) resample_upsample_v02_kernel(Windows windows, const T* x, T* y) {
  const unsigned first = blockIdx.x * (kThreads * kVectorsPerThread) + threadIdx.x;
  ptx::grid_dependency_wait();
  Bits<T, kWidth> pixel[kVectorsPerThread];
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    if (first + i * kThreads < windows.count) pixel[i] = load_wide<kWidth>(x, first + i * kThreads);
  }
  ptx::grid_dependency_launch();
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    const unsigned index = first + i * kThreads;
    if (index >= windows.count) break;
    const unsigned corner = windows.first(index);
    store_wide<kWidth>(y, corner, pixel[i]);
    store_wide<kWidth>(y, corner + windows.right(), pixel[i]);
    store_wide<kWidth>(y, corner + windows.below(), pixel[i]);
    store_wide<kWidth>(y, corner + windows.below() + windows.right(), pixel[i]);
  }
}

void launch(const Problem& p, const Upsample::Tensors& t, void*, Stream stream) {
  dispatch_width(p.dtype, whole_vectors(p.c, p.dtype), [&](auto element, auto width) {
    using T = decltype(element);
    const Windows layout = windows(p, width);
    ladder::launch(resample_upsample_v02_kernel<T, width>,
                   {.grid = stream_blocks(layout.count, kThreads, kVectorsPerThread),
                    .block = kThreads,
                    .overlaps_previous = true},
                   stream, layout, static_cast<const T*>(t.x), static_cast<T*>(t.y));
  });
}

}  // namespace
}  // namespace ladder::resample

LADDER_VERSION(ladder::resample::Upsample, {.launch = ladder::resample::launch,
                                            .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

// Idea:   sixteen bytes a load; a thread makes two vectors of the smaller image and has the eight loads for them in flight
//         together.
// Parent: v01.
// Why:    whole lines with few instructions, and 128 bytes a thread on their way cover memory's latency. Limiter: memory.
// Needs:  nothing; single elements where a pixel is no multiple of sixteen bytes.

#include "dev/common/wide.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/resample/windows.h"

namespace ladder::resample {
namespace {

constexpr int kThreads = 256;
constexpr int kVectorsPerThread = 2;

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) resample_pool_v02_kernel(Windows windows, const T* x, T* y) {
  const unsigned first = blockIdx.x * (kThreads * kVectorsPerThread) + threadIdx.x;

  // All loads, before anything waits for one.
  ptx::grid_dependency_wait();
  Bits<T, kWidth> window[kVectorsPerThread][4];
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    const unsigned index = first + i * kThreads;
    if (index >= windows.count) break;
    const unsigned corner = windows.first(index);
    window[i][0] = load_wide<kWidth>(x, corner);
    window[i][1] = load_wide<kWidth>(x, corner + windows.right());
    window[i][2] = load_wide<kWidth>(x, corner + windows.below());
    window[i][3] = load_wide<kWidth>(x, corner + windows.below() + windows.right());
  }
  ptx::grid_dependency_launch();

#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    const unsigned index = first + i * kThreads;
    if (index >= windows.count) break;
    float values[4][kWidth];
#pragma unroll
    for (int j = 0; j < 4; ++j) to_floats<T, kWidth>(window[i][j], values[j]);
    float mean[kWidth];
#pragma unroll
    for (int v = 0; v < kWidth; ++v) {
      mean[v] = 0.25f * ((values[0][v] + values[1][v]) + (values[2][v] + values[3][v]));
    }
    store_wide<kWidth>(y, index, from_floats<T, kWidth>(mean));
  }
}

void launch(const Problem& p, const Pool::Tensors& t, void*, Stream stream) {
  dispatch_width(p.dtype, whole_vectors(p.c, p.dtype), [&](auto element, auto width) {
    using T = decltype(element);
    const Windows layout = windows(p, width);
    ladder::launch(resample_pool_v02_kernel<T, width>,
                   {.grid = stream_blocks(layout.count, kThreads, kVectorsPerThread),
                    .block = kThreads,
                    .overlaps_previous = true},
                   stream, layout, static_cast<const T*>(t.x), static_cast<T*>(t.y));
  });
}

}  // namespace
}  // namespace ladder::resample

LADDER_VERSION(ladder::resample::Pool, {.launch = ladder::resample::launch,
                                        .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

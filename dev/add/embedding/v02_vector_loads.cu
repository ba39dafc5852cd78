// Idea:   sixteen bytes a load and a store, four vectors of an image a thread, a grid whose y is the image.
// Parent: v01.
// Why:    whole lines with few instructions: one remainder finds a vector's channels, no division its image. e's few lines stay
//         in L1. Limiter: memory.
// Needs:  nothing; single elements where a pixel is no multiple of sixteen bytes.

#include "dev/add/add.h"
#include "dev/common/wide.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::add {
namespace {

constexpr int kThreads = 256;
constexpr int kVectorsPerThread = 4;

template <int kWidth>
__device__ __forceinline__ void load_terms(const float* e, float (&terms)[kWidth]) {
  constexpr int kAtOnce = kWidth < 4 ? kWidth : 4;
#pragma unroll
  for (int v = 0; v < kWidth; v += kAtOnce) {
    float loaded[kAtOnce];
    to_floats<float, kAtOnce>(load_wide<kAtOnce>(e, v / kAtOnce), loaded);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) terms[v + i] = loaded[i];
  }
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    add_embedding_v02_kernel(unsigned columns, unsigned image, const T* x, const float* e, unsigned row, T* y) {
  const unsigned first = blockIdx.x * (kThreads * kVectorsPerThread) + threadIdx.x;  // in the image
  const unsigned begin = blockIdx.y * image;
  ptx::grid_dependency_wait();
  Bits<T, kWidth> loaded[kVectorsPerThread];
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    if (first + i * kThreads < image) loaded[i] = load_wide<kWidth>(x, begin + first + i * kThreads);
  }
  ptx::grid_dependency_launch();
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    const unsigned index = first + i * kThreads;
    if (index >= image) break;
    float sum[kWidth];
    float term[kWidth];
    to_floats<T, kWidth>(loaded[i], sum);
    load_terms(e + blockIdx.y * row + index % columns * kWidth, term);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) sum[v] += term[v];
    store_wide<kWidth>(y, begin + index, from_floats<T, kWidth>(sum));
  }
}

void launch(const Problem& p, const Embedding::Tensors& t, void*, Stream stream) {
  dispatch_width(p.dtype, whole_vectors(p.c, p.dtype) && p.whole_quads(), [&](auto element, auto width) {
    using T = decltype(element);
    const int columns = p.c / width;
    const int image = columns * p.pixels();
    const dim3 grid(stream_blocks(image, kThreads, kVectorsPerThread), static_cast<unsigned>(p.n));
    ladder::launch(add_embedding_v02_kernel<T, width>, {.grid = grid, .block = kThreads, .overlaps_previous = true},
                   stream, columns, image, static_cast<const T*>(t.x), t.e + p.first, p.row(), static_cast<T*>(t.y));
  });
}

}  // namespace
}  // namespace ladder::add

LADDER_VERSION(ladder::add::Embedding,
               {.launch = ladder::add::launch, .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

// Idea:   sixteen bytes a load and a store, four loads of a thread in flight together; exponential and quotient by one
//         instruction each.
// Parent: v01.
// Why:    whole lines with few instructions, and nothing left in the arithmetic that memory would wait for. Limiter: memory;
//         at the U-Net's 32 x 256 the launch itself.
// Needs:  nothing; single elements where the tensor is no multiple of sixteen bytes.

#include "dev/common/activation.h"
#include "dev/common/wide.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/silu/silu.h"

namespace ladder::silu {
namespace {

constexpr int kThreads = 256;
constexpr int kVectorsPerThread = 2;

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) silu_backward_v02_kernel(unsigned count, const T* x, const T* dy, T* dx) {
  const unsigned first = blockIdx.x * (kThreads * kVectorsPerThread) + threadIdx.x;
  ptx::grid_dependency_wait();
  Bits<T, kWidth> x_loaded[kVectorsPerThread];
  Bits<T, kWidth> dy_loaded[kVectorsPerThread];
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    if (first + i * kThreads >= count) break;
    x_loaded[i] = load_wide<kWidth>(x, first + i * kThreads);
    dy_loaded[i] = load_wide<kWidth>(dy, first + i * kThreads);
  }
  ptx::grid_dependency_launch();
#pragma unroll
  for (int i = 0; i < kVectorsPerThread; ++i) {
    if (first + i * kThreads >= count) break;
    float values[kWidth];
    float gradients[kWidth];
    to_floats<T, kWidth>(x_loaded[i], values);
    to_floats<T, kWidth>(dy_loaded[i], gradients);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) gradients[v] *= Silu::derivative(values[v]);
    store_wide<kWidth>(dx, first + i * kThreads, from_floats<T, kWidth>(gradients));
  }
}

void launch(const Problem& p, const Backward::Tensors& t, void*, Stream stream) {
  dispatch_width(p.dtype, whole_vectors(p.elements(), p.dtype), [&](auto element, auto width) {
    using T = decltype(element);
    const std::int64_t count = p.elements() / width;
    ladder::launch(
        silu_backward_v02_kernel<T, width>,
        {.grid = stream_blocks(count, kThreads, kVectorsPerThread), .block = kThreads, .overlaps_previous = true},
        stream, count, static_cast<const T*>(t.x), static_cast<const T*>(t.dy), static_cast<T*>(t.dx));
  });
}

}  // namespace
}  // namespace ladder::silu

LADDER_VERSION(ladder::silu::Backward, {.launch = ladder::silu::launch,
                                        .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

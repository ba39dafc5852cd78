// Idea:   one thread computes one element, straight from the formula.
// Parent: none.
// Why:    it is the definition. Limiter: at 32 x 64 the launch; of what is left, every frequency is computed twice.
// Needs:  nothing.

#include "dev/common/wide.h"
#include "dev/embedding/angle.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::embedding {
namespace {

constexpr int kThreads = 256;

template <class Time, class T>
__global__ void embedding_timestep_v01_kernel(Problem p, const Time* t, T* y) {
  const int half = p.c / 2;
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  const int n = static_cast<int>(index / p.c);
  const int c = static_cast<int>(index % p.c);
  if (n >= p.n) return;
  ptx::grid_dependency_wait();
  float value = 0;
  if (c < half) {
    value = cosf(angle(t[n], c, half));
  } else if (c < 2 * half) {
    value = sinf(angle(t[n], c - half, half));
  }
  ptx::grid_dependency_launch();
  y[index] = from_float<T>(value);
}

void launch(const Problem& p, const Timestep::Tensors& t, void*, Stream stream) {
  dispatch_types(p, [&](auto time, auto element) {
    using Time = decltype(time);
    using T = decltype(element);
    ladder::launch(embedding_timestep_v01_kernel<Time, T>,
                   {.grid = stream_blocks(p.elements(), kThreads, 1), .block = kThreads, .overlaps_previous = true},
                   stream, p, static_cast<const Time*>(t.t), static_cast<T*>(t.y));
  });
}

}  // namespace
}  // namespace ladder::embedding

LADDER_VERSION(ladder::embedding::Timestep, {.launch = ladder::embedding::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

// Idea:   one thread computes one element, straight from the formula.
// Parent: none.
// Why:    it is the definition. Limiter: arithmetic, as each of four neighbours makes all four normal numbers anew.
// Needs:  nothing.

#include "dev/diffusion/gaussian.h"

namespace ladder::diffusion {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void diffusion_q_sample_v01_kernel(Problem p, QSample::Tensors t) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  const unsigned image = p.h * p.w * p.c;
  const unsigned n = index / image;
  if (n >= static_cast<unsigned>(p.n)) return;
  const Diffused coefficients = t.table[t.t[n]];
  const float noise = normal(t.philox, image, index);
  t.noise[index] = noise;
  static_cast<T*>(t.x_t)[index] =
      from_float<T>(coefficients.signal * to_float(static_cast<const T*>(t.x0)[index]) + coefficients.noise * noise);
}

void launch(const Problem& p, const QSample::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    ladder::launch(diffusion_q_sample_v01_kernel<decltype(element)>,
                   {.grid = stream_blocks(p.elements(), kThreads, 1), .block = kThreads}, stream, p, t);
  });
}

}  // namespace
}  // namespace ladder::diffusion

LADDER_VERSION(ladder::diffusion::QSample, {.launch = ladder::diffusion::launch,
                                            .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

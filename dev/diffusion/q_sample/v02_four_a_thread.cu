// Idea:   a thread takes the four elements of one Philox counter, whole vectors of x0, x_t and noise.
// Parent: v01.
// Why:    a quarter of the arithmetic and of the instructions that load and store. Limiter: at 32 images of 64x64x3 the
//         launch.
// Needs:  nothing; an image's elements that are no multiple of four are loaded and stored one by one.

#include "dev/diffusion/gaussian.h"
#include "dev/diffusion/quads.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::diffusion {
namespace {

constexpr int kThreads = 128;

template <class T, bool kFullQuads>
__global__ void __launch_bounds__(kThreads)
    diffusion_q_sample_v02_kernel(unsigned num_images, unsigned image, QSample::Tensors t) {
  const unsigned quad = blockIdx.x * kThreads + threadIdx.x;
  const unsigned n = quad / quads_of(image);
  if (n >= num_images) return;
  const unsigned count = num_images * image;
  const unsigned element = 4 * (quad - n * quads_of(image));
  const unsigned index = n * image + element;
  ptx::grid_dependency_wait();
  float x[4];
  if constexpr (kFullQuads) {
    load_four(static_cast<const T*>(t.x0), quad, count, x);
  } else {
    load_some(static_cast<const T*>(t.x0) + index, image - element, x);
  }
  const Diffused coefficients = t.table[t.t[n]];
  const float4 four = normals(t.philox, image, quad);
  const float noise[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) x[i] = coefficients.signal * x[i] + coefficients.noise * noise[i];
  ptx::grid_dependency_launch();
  if constexpr (kFullQuads) {
    store_four(static_cast<T*>(t.x_t), quad, count, x);
    store_four(t.noise, quad, count, noise);
  } else {
    store_some(static_cast<T*>(t.x_t) + index, image - element, x);
    store_some(t.noise + index, image - element, noise);
  }
}

void launch(const Problem& p, const QSample::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    auto kernel = p.image() % 4 == 0 ? diffusion_q_sample_v02_kernel<T, true> : diffusion_q_sample_v02_kernel<T, false>;
    ladder::launch(kernel,
                   {.grid = stream_blocks(std::int64_t{p.n} * quads_of(p.image()), kThreads, 1),
                    .block = kThreads,
                    .overlaps_previous = true},
                   stream, p.n, p.image(), t);
  });
}

}  // namespace
}  // namespace ladder::diffusion

LADDER_VERSION(ladder::diffusion::QSample, {.launch = ladder::diffusion::launch,
                                            .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

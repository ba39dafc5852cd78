// Idea:   one thread computes one element of dpred; one thread sums one image's squares, and one all images'.
// Parent: none.
// Why:    it is the definition. Limiter: a thread an image, whose additions wait for each other and for single loads.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/common/wide.h"
#include "dev/diffusion/diffusion.h"

namespace ladder::diffusion {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void diffusion_loss_v01_gradient_kernel(unsigned count, const T* pred, const float* noise, T* dpred) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= count) return;
  dpred[index] = from_float<T>(2.0f * (to_float(pred[index]) - noise[index]) / static_cast<float>(count));
}

template <class T>
__global__ void diffusion_loss_v01_images_kernel(unsigned n, unsigned image, const T* pred, const float* noise,
                                                 float* losses) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= n) return;
  float sum = 0;
  for (unsigned i = index * image; i < (index + 1) * image; ++i) {
    const float difference = to_float(pred[i]) - noise[i];
    sum += difference * difference;
  }
  losses[index] = sum / static_cast<float>(image);
}

__global__ void diffusion_loss_v01_mean_kernel(int n, const float* losses, float* loss) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += losses[i];
  *loss = sum / static_cast<float>(n);
}

void launch(const Problem& p, const Loss::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    const auto* const pred = static_cast<const T*>(t.pred);
    ladder::launch(diffusion_loss_v01_gradient_kernel<T>,
                   {.grid = stream_blocks(p.elements(), kThreads, 1), .block = kThreads}, stream, p.elements(), pred,
                   t.noise, static_cast<T*>(t.dpred));
    ladder::launch(diffusion_loss_v01_images_kernel<T>, {.grid = stream_blocks(p.n, kThreads, 1), .block = kThreads},
                   stream, p.n, p.image(), pred, t.noise, t.losses);
  });
  ladder::launch(diffusion_loss_v01_mean_kernel, {.grid = 1, .block = 1}, stream, p.n, t.losses, t.loss);
}

}  // namespace
}  // namespace ladder::diffusion

LADDER_VERSION(ladder::diffusion::Loss, {.launch = ladder::diffusion::launch,
                                         .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

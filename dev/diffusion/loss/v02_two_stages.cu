// Idea:   many blocks an image make dpred and a part of the image's sum in one reading; a second kernel of one block
//         adds the parts, then the images, in order.
// Parent: v01.
// Why:    pred and noise are read once, in vectors, by blocks enough for every SM. Limiter: at 32 images of 64x64x3 the
//         two launches; an image's sum needs all of its blocks, the loss all images.
// Needs:  nothing; single elements where an image is no multiple of four; a workspace of one fp32 per part of an image.

#include "dev/common/block_sum.h"
#include "dev/diffusion/quads.h"

namespace ladder::diffusion {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 2;  // quads, or single elements, per thread
constexpr int kMaxParts = 64;

// Partition of an image: a unit is a load of kWidth elements, a part has `each` units.
struct Cut {
  unsigned units;  // per image
  int parts;
  unsigned each;
};

template <int kWidth>
Cut cut_of(const Problem& p) {
  Cut cut{.units = static_cast<unsigned>(p.image() / kWidth)};
  const std::int64_t parts = (p.image() / kWidth + kThreads * kEach - 1) / (kThreads * kEach);
  cut.parts = static_cast<int>(parts < kMaxParts ? parts : kMaxParts);
  cut.each = (cut.units + cut.parts - 1) / cut.parts;
  return cut;
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    diffusion_loss_v02_parts_kernel(Cut cut, float scale, const T* pred, const float* noise, T* dpred, float* sums) {
  const unsigned image = blockIdx.y * cut.units;
  const unsigned last = min((blockIdx.x + 1) * cut.each, cut.units);
  float sum = 0;
#pragma unroll kEach
  for (unsigned unit = blockIdx.x * cut.each + threadIdx.x; unit < last; unit += kThreads) {
    float difference[kWidth];
    float target[kWidth];
    load_unit<T, kWidth>(pred, image + unit, difference);
    load_unit<float, kWidth>(noise, image + unit, target);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) {
      difference[v] -= target[v];
      sum += difference[v] * difference[v];
      difference[v] *= scale;
    }
    store_unit<T, kWidth>(dpred, image + unit, difference);
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) sums[blockIdx.y * cut.parts + blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    diffusion_loss_v02_mean_kernel(int n, int parts, float image, const float* sums, float* losses, float* loss) {
  float total = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
    float sum = 0;
    for (int part = 0; part < parts; ++part) sum += sums[i * parts + part];
    losses[i] = sum / image;
    total += sum / image;
  }
  total = block_sum<kThreads>(total);
  if (threadIdx.x == 0) *loss = total / static_cast<float>(n);
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float) * p.n * kMaxParts; }

void launch(const Problem& p, const Loss::Tensors& t, void* workspace, Stream stream) {
  auto* const sums = static_cast<float*>(workspace);  // [n][parts]
  const auto run = [&](auto element, auto width) {
    using T = decltype(element);
    const Cut cut = cut_of<width>(p);
    const dim3 grid(static_cast<unsigned>(cut.parts), static_cast<unsigned>(p.n));
    ladder::launch(diffusion_loss_v02_parts_kernel<T, width>, {.grid = grid, .block = kThreads}, stream, cut,
                   static_cast<float>(2.0 / static_cast<double>(p.elements())), static_cast<const T*>(t.pred), t.noise,
                   static_cast<T*>(t.dpred), sums);
    ladder::launch(diffusion_loss_v02_mean_kernel, {.grid = 1, .block = kThreads}, stream, p.n, cut.parts, p.image(),
                   sums, t.losses, t.loss);
  };
  with_unit(p, run);
}

}  // namespace
}  // namespace ladder::diffusion

LADDER_VERSION(ladder::diffusion::Loss, {.launch = ladder::diffusion::launch,
                                         .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                         .workspace_bytes = ladder::diffusion::workspace_bytes})

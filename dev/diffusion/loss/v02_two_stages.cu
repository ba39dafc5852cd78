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
constexpr int kVectorsPerThread = 2;  // quads, or single elements
constexpr int kMaxParts = 64;

// Partition of an image into parts of `vectors_per_part` vectors, each of kWidth elements.
struct ImageSplit {
  unsigned vectors;  // per image
  int parts;
  unsigned vectors_per_part;
};

template <int kWidth>
ImageSplit split_of(const Problem& p) {
  ImageSplit split{.vectors = static_cast<unsigned>(p.image() / kWidth)};
  const std::int64_t parts = (p.image() / kWidth + kThreads * kVectorsPerThread - 1) / (kThreads * kVectorsPerThread);
  split.parts = static_cast<int>(parts < kMaxParts ? parts : kMaxParts);
  split.vectors_per_part = (split.vectors + split.parts - 1) / split.parts;
  return split;
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    diffusion_loss_v02_parts_kernel(ImageSplit split, float scale, const T* pred, const float* noise, T* dpred,
                                    float* sums) {
  const unsigned image = blockIdx.y * split.vectors;
  const unsigned last = min((blockIdx.x + 1) * split.vectors_per_part, split.vectors);
  float sum = 0;
#pragma unroll kVectorsPerThread
  for (unsigned vector = blockIdx.x * split.vectors_per_part + threadIdx.x; vector < last; vector += kThreads) {
    float difference[kWidth];
    float target[kWidth];
    load_vector<T, kWidth>(pred, image + vector, difference);
    load_vector<float, kWidth>(noise, image + vector, target);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) {
      difference[v] -= target[v];
      sum += difference[v] * difference[v];
      difference[v] *= scale;
    }
    store_vector<T, kWidth>(dpred, image + vector, difference);
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) sums[blockIdx.y * split.parts + blockIdx.x] = sum;
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
    const ImageSplit split = split_of<width>(p);
    const dim3 grid(static_cast<unsigned>(split.parts), static_cast<unsigned>(p.n));
    ladder::launch(diffusion_loss_v02_parts_kernel<T, width>, {.grid = grid, .block = kThreads}, stream, split,
                   static_cast<float>(2.0 / static_cast<double>(p.elements())), static_cast<const T*>(t.pred), t.noise,
                   static_cast<T*>(t.dpred), sums);
    ladder::launch(diffusion_loss_v02_mean_kernel, {.grid = 1, .block = kThreads}, stream, p.n, split.parts, p.image(),
                   sums, t.losses, t.loss);
  };
  with_vector_width(p, run);
}

}  // namespace
}  // namespace ladder::diffusion

LADDER_VERSION(ladder::diffusion::Loss, {.launch = ladder::diffusion::launch,
                                         .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                         .workspace_bytes = ladder::diffusion::workspace_bytes})

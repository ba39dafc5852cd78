// Idea:   the kernel that adds the parts is set up while the first one runs (programmatic dependent launch), and a warp of it
//         adds an image's, a lane each.
// Parent: v02.
// Why:    besides its bytes v02 has the second launch and, in it, a thread an image whose loads wait for each other. The block is
//         on its SM when the first kernel's last one ends, and loads all parts at once. One quad a thread in the first: loads
//         that no store stands in front of, and three blocks an SM at 32 images of 64x64x3, where v02 has one or two. Limiter:
//         the parts still go through memory, read after everything else.
// Needs:  sm_90; single elements where an image is no multiple of four; a workspace of an fp32 a part of an image.

#include "dev/common/block_sum.h"
#include "dev/diffusion/quads.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::diffusion {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxParts = 64;
constexpr int kMeanThreads = 1024;  // a warp for each of 32 images
constexpr int kMeanWarps = kMeanThreads / 32;
static_assert(kMeanWarps == 32, "the warps' sums are one warp's lanes");

// A vector is kWidth elements. A row of blocks has one image; part x of the image is the vectors of the row's block x.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    diffusion_loss_v03_parts_kernel(unsigned vectors, float scale, const T* pred, const float* noise, T* dpred,
                                    float* sums) {
  const unsigned image = blockIdx.y * vectors;
  ptx::grid_dependency_wait();
  ptx::grid_dependency_launch();
  float sum = 0;
  for (unsigned vector = blockIdx.x * kThreads + threadIdx.x; vector < vectors; vector += gridDim.x * kThreads) {
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
  if (threadIdx.x == 0) sums[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

// All lanes have it, in an order that depends on their places alone.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

__global__ void __launch_bounds__(kMeanThreads)
    diffusion_loss_v03_mean_kernel(int n, int parts, float elements, const float* sums, float* losses, float* loss) {
  LADDER_SHARED(float, warp_sums, [kMeanWarps]);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  ptx::grid_dependency_wait();
  float total = 0;
#pragma unroll 1
  for (int image = warp; image < n; image += kMeanWarps) {
    float sum = 0;
#pragma unroll
    for (int first = 0; first < kMaxParts; first += 32) {
      if (first + lane < parts) sum += sums[image * parts + first + lane];
    }
    const float mean = warp_sum(sum) / elements;
    if (lane == 0) losses[image] = mean;
    total += mean;
  }
  ptx::grid_dependency_launch();
  if (lane == 0) warp_sums[warp] = total;
  __syncthreads();
  if (warp > 0) return;
  total = warp_sum(warp_sums[lane]);
  if (lane == 0) *loss = total / static_cast<float>(n);
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float) * p.n * kMaxParts; }

void launch(const Problem& p, const Loss::Tensors& t, void* workspace, Stream stream) {
  auto* const sums = static_cast<float*>(workspace);  // [n][parts]
  const auto run = [&](auto element, auto width) {
    using T = decltype(element);
    const unsigned blocks = stream_blocks(p.image(), kThreads, width);
    const unsigned parts = blocks < kMaxParts ? blocks : kMaxParts;
    ladder::launch(diffusion_loss_v03_parts_kernel<T, width>,
                   {.grid = dim3(parts, static_cast<unsigned>(p.n)), .block = kThreads, .overlaps_previous = true},
                   stream, p.image() / width, static_cast<float>(2.0 / static_cast<double>(p.elements())),
                   static_cast<const T*>(t.pred), t.noise, static_cast<T*>(t.dpred), sums);
    ladder::launch(diffusion_loss_v03_mean_kernel, {.grid = 1, .block = kMeanThreads, .overlaps_previous = true},
                   stream, p.n, parts, p.image(), sums, t.losses, t.loss);
  };
  with_vector_width(p, run);
}

}  // namespace
}  // namespace ladder::diffusion

LADDER_VERSION(ladder::diffusion::Loss, {.launch = ladder::diffusion::launch,
                                         .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                         .workspace_bytes = ladder::diffusion::workspace_bytes,
                                         .min_arch = 90})

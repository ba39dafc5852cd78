// Idea:   the blocks of an image are a cluster: each leaves its sums in the shared memory of the first, which adds them in
//         order.
// Parent: v02.
// Why:    a U-Net's backward pass makes 22 such sums, and v02's second kernel costs each of them a launch. Limiter: memory;
//         where images are small the launch and two cluster barriers.
// Needs:  sm_90 for clusters; otherwise as v02, without the workspace.

#include "dev/add/columns.h"
#include "dev/ptx/cluster.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::add {
namespace {

constexpr int kMinPixels = 4;  // of a thread
constexpr int kMaxParts = 8;   // the largest cluster that every card has room for

template <class T, int kWidth>
__global__ void __launch_bounds__(kColumnThreads)
    add_embedding_backward_v03_kernel(Problem p, ColumnSplit split, const T* dy, float* de, unsigned row_of_de) {
  LADDER_DYN_SMEM(smem);
  auto* const gathered = reinterpret_cast<float*>(smem);  // [part][kWidth][column], of the first block
  const auto part = static_cast<int>(ptx::cluster_rank());
  const auto chunk = static_cast<int>(blockIdx.x) / split.parts;
  const auto n = static_cast<int>(blockIdx.y);
  const auto thread = static_cast<int>(threadIdx.x);
  // Make sure that the first block has begun before its shared memory is written; by the time of the wait it long has.
  ptx::cluster_arrive_relaxed();
  ptx::grid_dependency_wait();
  float sums[kWidth];
  const bool has_sums = sum_part<T, kWidth>(p, split, dy, n, part, chunk, sums);
  ptx::grid_dependency_launch();
  ptx::cluster_wait();

  if (has_sums) {
    const auto row = ptx::mapa(gathered + part * kWidth * split.columns, 0);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) ptx::st_shared_cluster(row + (v * split.columns + thread), sums[v]);
  }
  ptx::cluster_sync();

  if (part != 0 || !has_sums) return;
  const unsigned column = chunk * split.columns + threadIdx.x;
#pragma unroll
  for (int v = 0; v < kWidth; ++v) {
    float sum = sums[v];
    for (int other = 1; other < split.parts; ++other) sum += gathered[(other * kWidth + v) * split.columns + thread];
    de[n * row_of_de + column * kWidth + v] = sum;
  }
}

void launch(const Problem& p, const EmbeddingBackward::Tensors& t, void*, Stream stream) {
  dispatch_width(p.dtype, whole_vectors(p.c, p.dtype), [&](auto element, auto width) {
    using T = decltype(element);
    const ColumnSplit split = column_split<T, width>(p, kMinPixels, kMaxParts);
    const dim3 grid(static_cast<unsigned>(split.parts * split.chunks), static_cast<unsigned>(p.n));
    ladder::launch(add_embedding_backward_v03_kernel<T, width>,
                   {.grid = grid,
                    .block = kColumnThreads,
                    .dynamic_smem = sizeof(float) * split.parts * split.columns * width,
                    .cluster = static_cast<unsigned>(split.parts),
                    .overlaps_previous = true},
                   stream, p, split, static_cast<const T*>(t.dy), t.de + p.first, p.row());
  });
}

}  // namespace
}  // namespace ladder::add

LADDER_VERSION(ladder::add::EmbeddingBackward, {.launch = ladder::add::launch,
                                                .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                                .min_arch = 90,
                                                .needs = "thread-block clusters"})

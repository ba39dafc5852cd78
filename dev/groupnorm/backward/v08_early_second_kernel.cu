// Idea:   the kernel that adds up dgamma and dbeta is set up while the first one runs (programmatic dependent launch);
//         a block keeps a slab for itself where two such blocks fit an SM, and a cluster shares it where they do not.
// Parent: v05 and v06.
// Why:    a small problem is half launches: the second kernel's blocks are on their SMs when the first one's last block
//         ends, and wait there. A cluster's blocks start together and wait for each other twice, which wide runs repay
//         only where a block would have an SM to itself. Limiter: the sums of all images still go through memory, and
//         are read after everything else.
// Needs:  c in whole vectors of sixteen bytes, a slab that fits in eight blocks' shared memory, sm_90; a workspace of
//         two floats a channel of every image.

#include "core/occupancy.h"
#include "dev/groupnorm/gradient_smem.h"
#include "dev/groupnorm/parameter_gradients.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/ld_shared_cluster.h"

namespace ladder::groupnorm {
namespace {

template <class T, class Act, bool kCluster>
__global__ void __launch_bounds__(kSmemThreads, kSmemBlocksPerSm)
    groupnorm_backward_v08_kernel(Problem p, Backward::Tensors t, Slab slab, float2* rows) {
  LADDER_DYN_SMEM(raw);
  const SmemSlab<T> kept(raw, slab);
  const SlabSums<T> smem(kept.end, slab);
  const SlabPlace<T> place(p, slab);

  // Everything is on its way at once.
  load_slab(p, t, slab, place, kept);
  ptx::grid_dependency_launch();
  load_channels(p, t, slab, place, smem);
  __syncthreads();
  Channel channels[kVector<T>];
#pragma unroll
  for (int i = 0; i < kVector<T>; ++i) channels[i] = smem.channels[place.column * kVector<T> + i];
  ptx::cp_async_wait<0>();

  // Sums of a thread, then of the block.
  float2 sums[kVector<T>] = {};
  sum_slab<Act>(slab, place, kept, channels, sums);
  sum_rows(slab, smem, sums);
  if constexpr (kCluster) {
    ptx::cluster_sync();
  } else {
    __syncthreads();
  }

  // Sums of the image, in the order of the blocks' ranks.
  correct(p, t, slab, place, smem, !kCluster || place.rank == 0 ? rows : nullptr, [&](int i) {
    if constexpr (!kCluster) return smem.sums[i];
    float2 sum{0, 0};
    for (int rank = 0; rank < slab.cluster; ++rank) {
      const float2 part = ptx::ld_shared_cluster(ptx::mapa(smem.sums + i, rank));
      sum.x += part.x, sum.y += part.y;
    }
    return sum;
  });
  if constexpr (kCluster) ptx::cluster_arrive_relaxed();  // this block has read the others' sums

  write_slab<Act>(p, t, slab, place, kept, channels, smem);
  if constexpr (kCluster) ptx::cluster_wait();  // the others have read this block's: it may end
}

Slab plan(const Problem& p) {
  const Slab alone = plan_smem(p, 1);
  const bool two_fit = alone.chunk != 0 && blocks_per_sm(slab_smem_bytes(alone)) >= 2;
  return two_fit ? alone : plan_smem(p, kMaxClusterBlocks);
}

const char* supports(const Problem& p) {
  if (const char* const why = plain_only(p)) return why;
  if (!whole_vectors(p)) return "a pixel's channels are no whole vectors of 16 bytes";
  if (plan(p).chunk == 0) return "x and dy of an image's group do not fit in the shared memory of eight blocks";
  return nullptr;
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * p.n * p.c; }

void launch(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  auto* const rows = p.affine ? static_cast<float2*>(workspace) : nullptr;  // [n][c]
  dispatch_types(p, [&](auto element, auto act) {
    using T = decltype(element);
    using Act = decltype(act);
    const Slab slab = plan(p);
    const auto kernel = slab.cluster == 1 ? groupnorm_backward_v08_kernel<T, Act, false>  //
                                          : groupnorm_backward_v08_kernel<T, Act, true>;
    ladder::launch(kernel,
                   {.grid = slab_blocks(p, slab),
                    .block = slab_threads(slab),
                    .dynamic_smem = static_cast<std::size_t>(slab_smem_bytes(slab)),
                    .cluster = static_cast<unsigned>(slab.cluster)},
                   stream, p, t, slab, rows);
  });
  launch_parameters(p, rows, p.n, t, stream, true);
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Backward, {.launch = ladder::groupnorm::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                             .supports = ladder::groupnorm::supports,
                                             .workspace_bytes = ladder::groupnorm::workspace_bytes,
                                             .min_arch = 90,
                                             .needs = "whole vectors; slabs that fit in eight blocks' shared memory"})

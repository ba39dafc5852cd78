// Idea:   a slab is spread over a cluster: each block keeps x and dy of its share of the pixels in shared memory, and reads
//         the channels' sums of the others out of theirs.
// Parent: v02 (v03 to v05 are retired: README).
// Why:    a slab may be eight times as large, so that runs have 64 bytes and more where v05 has 16, every group of the U-Net
//         fits, and a small problem spreads over more SMs. Sums of blocks are added in the order of their ranks. Limiter:
//         x and dy pass through shared memory twice and the exponential is computed twice.
// Needs:  c in whole vectors of sixteen bytes, a slab that fits in eight blocks' shared memory, clusters (sm_90); a
//         workspace of two floats a channel of every image.

#include "core/occupancy.h"
#include "dev/groupnorm/gradient_smem.h"
#include "dev/groupnorm/parameter_gradients.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/ld_shared_cluster.h"

namespace ladder::groupnorm {
namespace {

template <class T, class Act>
__global__ void __launch_bounds__(kSmemThreads, kSmemBlocksPerSm)
    groupnorm_backward_v06_kernel(Problem p, Backward::Tensors t, Slab slab, float2* rows) {
  LADDER_DYN_SMEM(raw);
  const SmemSlab<T> kept(raw, slab);
  const SlabSums<T> smem(kept.end, slab);
  const SlabPlace<T> place(p, slab);

  // Everything is on its way at once.
  load_slab(p, t, slab, place, kept);
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
  ptx::cluster_sync();

  // Sums of the image, in the order of the blocks' ranks.
  correct(p, t, slab, place, smem, place.rank == 0 ? rows : nullptr, [&](int i) {
    float2 sum{0, 0};
    for (int rank = 0; rank < slab.cluster; ++rank) {
      const float2 part = ptx::ld_shared_cluster(ptx::mapa(smem.sums + i, rank));
      sum.x += part.x, sum.y += part.y;
    }
    return sum;
  });
  ptx::cluster_arrive_relaxed();  // this block has read the others' sums

  write_slab<Act>(p, t, slab, place, kept, channels, smem);
  ptx::cluster_wait();  // the others have read this block's: it may end
}

const char* supports(const Problem& p) {
  if (const char* const why = plain_only(p)) return why;
  if (!whole_vectors(p)) return "a pixel's channels are no whole vectors of 16 bytes";
  if (plan_smem(p).chunk == 0) return "x and dy of an image's group do not fit in the shared memory of eight blocks";
  return nullptr;
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * p.n * p.c; }

void launch(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  auto* const rows = p.affine ? static_cast<float2*>(workspace) : nullptr;  // [n][c]
  dispatch_types(p, [&](auto element, auto act) {
    using T = decltype(element);
    const Slab slab = plan_smem(p);
    ladder::launch(groupnorm_backward_v06_kernel<T, decltype(act)>,
                   {.grid = slab_blocks(p, slab),
                    .block = slab_threads(slab),
                    .dynamic_smem = static_cast<std::size_t>(slab_smem_bytes(slab)),
                    .cluster = static_cast<unsigned>(slab.cluster)},
                   stream, p, t, slab, rows);
  });
  launch_parameters(p, rows, p.n, t, stream);
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Backward, {.launch = ladder::groupnorm::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                             .supports = ladder::groupnorm::supports,
                                             .workspace_bytes = ladder::groupnorm::workspace_bytes,
                                             .min_arch = 90,
                                             .needs = "whole vectors; slabs that fit in eight blocks' shared memory"})

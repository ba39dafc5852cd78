// Idea:   a block owns a chunk of channels of an image, whole groups, and keeps x and dy of all its pixels in shared memory
//         between the sums and dx.
// Parent: v04.
// Why:    two reads and one write instead of four and one, and a block waits for no other: reading, summing and writing of
//         blocks on one SM overlap. A thread reads back what it copied itself, so the slab needs no barrier. Limiter: an
//         image of 64x64 fills an SM with 8 channels, runs of 16 bytes, and each block's phases stand idle.
// Needs:  c in whole vectors of sixteen bytes, a slab that fits in shared memory, cp.async; a workspace of two floats a
//         channel of every image.

#include "dev/groupnorm/gradient_smem.h"
#include "dev/groupnorm/parameter_gradients.h"

namespace ladder::groupnorm {
namespace {

template <class T, class Act>
__global__ void __launch_bounds__(kSmemThreads, kSmemBlocksPerSm)
    groupnorm_backward_v05_kernel(Problem p, Backward::Tensors t, Slab slab, float2* rows) {
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
  __syncthreads();
  correct(p, t, slab, place, smem, rows, [&](int i) { return smem.sums[i]; });

  write_slab<Act>(p, t, slab, place, kept, channels, smem);
}

const char* supports(const Problem& p) {
  if (const char* const why = plain_only(p)) return why;
  if (!whole_vectors(p)) return "a pixel's channels are no whole vectors of 16 bytes";
  if (plan_smem(p, 1).chunk == 0) return "x and dy of an image's group do not fit in shared memory";
  return nullptr;
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * p.n * p.c; }

void launch(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  auto* const rows = p.affine ? static_cast<float2*>(workspace) : nullptr;  // [n][c]
  dispatch_types(p, [&](auto element, auto act) {
    using T = decltype(element);
    const Slab slab = plan_smem(p, 1);
    ladder::launch(groupnorm_backward_v05_kernel<T, decltype(act)>,
                   {.grid = slab_blocks(p, slab),
                    .block = slab_threads(slab),
                    .dynamic_smem = static_cast<std::size_t>(slab_smem_bytes(slab))},
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
                                             .min_arch = 80,
                                             .needs = "whole vectors; slabs that fit in shared memory"})

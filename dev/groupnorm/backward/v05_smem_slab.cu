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
  backward_in_smem<T, Act, false>(p, t, slab, rows, [] {});
}

const char* supports(const Problem& p) {
  if (!whole_vectors(p)) return "a pixel's channels are no whole vectors of 16 bytes";
  const char* reason = nullptr;
  with_storage_type(p.dtype, [&](auto element) {
    if (plan_smem<decltype(element)>(p, 1).chunk == 0)
      reason = "x and dy of an image's group do not fit in shared memory";
  });
  return reason;
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * p.n * p.c; }

void launch(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  auto* const rows = p.affine ? static_cast<float2*>(workspace) : nullptr;  // [n][c]
  dispatch_types(p, [&](auto element, auto act) {
    using T = decltype(element);
    const Slab slab = plan_smem<T>(p, 1);
    ladder::launch(groupnorm_backward_v05_kernel<T, decltype(act)>,
                   {.grid = slab_blocks(p, slab),
                    .block = slab_threads(slab),
                    .dynamic_smem = static_cast<std::size_t>(slab_smem_bytes<T>(slab))},
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

// Idea:   the kernel that adds up dgamma and dbeta is set up while the first one runs (programmatic dependent launch);
//         a block keeps a slab for itself where two such blocks fit an SM, and a cluster shares it where they do not.
// Parent: v05 and v06.
// Why:    a small problem is half launches: the second kernel's blocks are on their SMs when the first one's last block
//         ends, and wait there. A cluster's blocks start together and wait for each other twice, which wide runs repay
//         only where a block would have an SM to itself. Limiter: the sums of all images still go through memory, and
//         are read behind everything else.
// Needs:  c in whole vectors of sixteen bytes, a slab that fits in eight blocks' shared memory, sm_90; a workspace of
//         two floats a channel of every image.

#include "dev/groupnorm/gradient_smem.h"
#include "dev/groupnorm/parameter_gradients.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::groupnorm {
namespace {

template <class T, class Act, bool kCluster>
__global__ void __launch_bounds__(kSmemThreads, kSmemBlocksPerSm)
    groupnorm_backward_v08_kernel(Problem p, Backward::Tensors t, Slab slab, float2* rows) {
  backward_in_smem<T, Act, kCluster>(p, t, slab, rows, [] { ptx::grid_dependency_launch(); });
}

template <class T>
Slab plan(const Problem& p) {
  const Slab alone = plan_smem<T>(p, 1);
  const bool two_fit = alone.chunk != 0 && blocks_per_sm(slab_smem_bytes<T>(alone)) >= 2;
  return two_fit ? alone : plan_smem<T>(p, kMaxClusterBlocks);
}

const char* supports(const Problem& p) {
  if (!whole_vectors(p)) return "a pixel's channels are no whole vectors of 16 bytes";
  const char* reason = nullptr;
  with_storage_type(p.dtype, [&](auto element) {
    if (plan<decltype(element)>(p).chunk == 0)
      reason = "x and dy of an image's group do not fit in the shared memory of eight blocks";
  });
  return reason;
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * p.n * p.c; }

void launch(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  auto* const rows = p.affine ? static_cast<float2*>(workspace) : nullptr;  // [n][c]
  dispatch_types(p, [&](auto element, auto act) {
    using T = decltype(element);
    using Act = decltype(act);
    const Slab slab = plan<T>(p);
    const auto kernel = slab.cluster == 1 ? groupnorm_backward_v08_kernel<T, Act, false>  //
                                          : groupnorm_backward_v08_kernel<T, Act, true>;
    ladder::launch(kernel,
                   {.grid = slab_blocks(p, slab),
                    .block = slab_threads(slab),
                    .dynamic_smem = static_cast<std::size_t>(slab_smem_bytes<T>(slab)),
                    .cluster = static_cast<unsigned>(slab.cluster)},
                   stream, p, t, slab, rows);
  });
  launch_parameters<true>(p, rows, p.n, t, stream);
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Backward, {.launch = ladder::groupnorm::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                             .supports = ladder::groupnorm::supports,
                                             .workspace_bytes = ladder::groupnorm::workspace_bytes,
                                             .min_arch = 90,
                                             .needs = "whole vectors; slabs that fit in eight blocks' shared memory"})

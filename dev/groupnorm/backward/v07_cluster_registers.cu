// Idea:   the slab stays in registers: x as it came, and dz in fp32 in place of dy.
// Parent: v06.
// Why:    nothing passes through shared memory but sums and constants, the exponential is computed once an element instead
//         of twice, and all of a block's loads are under way before its first instruction of arithmetic. Limiter: an SM's
//         registers hold a quarter of what its shared memory does, hence shorter runs of channels; the second kernel
//         for dgamma and dbeta.
// Needs:  c in whole vectors of sixteen bytes, a slab that fits in eight blocks' registers, clusters (sm_90); a workspace
//         of two floats a channel of every image.

#include "dev/groupnorm/gradient_registers.h"
#include "dev/groupnorm/parameter_gradients.h"

namespace ladder::groupnorm {
namespace {

template <class T, class Act, int kSteps, int kThreads>
__global__ void __launch_bounds__(kThreads, 512 / kThreads)
    groupnorm_backward_v07_kernel(Problem p, Backward::Tensors t, Slab slab, float2* rows) {
  backward_in_registers<T, Act, kSteps>(p, t, slab, rows);
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * p.n * p.c; }

void launch(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  auto* const rows = p.affine ? static_cast<float2*>(workspace) : nullptr;  // [n][c]
  dispatch_registers(p, [&](auto element, auto act, auto steps, auto threads, const Slab& slab) {
    using T = decltype(element);
    ladder::launch(groupnorm_backward_v07_kernel<T, decltype(act), steps.value, threads.value>,
                   {.grid = slab_blocks(p, slab),
                    .block = slab_threads(slab),
                    .dynamic_smem = static_cast<std::size_t>(SlabSums<T>::bytes(slab)),
                    .cluster = static_cast<unsigned>(slab.cluster)},
                   stream, p, t, slab, rows);
  });
  launch_parameters(p, rows, p.n, t, stream);
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Backward, {.launch = ladder::groupnorm::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                             .supports = ladder::groupnorm::supports_registers,
                                             .workspace_bytes = ladder::groupnorm::workspace_bytes,
                                             .min_arch = 90,
                                             .needs = "whole vectors; slabs that fit in eight blocks' registers"})

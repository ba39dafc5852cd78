// Idea:   the slab is spread over the shared memory of a cluster's blocks, which exchange their sums through it.
// Parent: v05.
// Why:    a cluster of 8 keeps an image of 64x64 with rows of 64 bytes at 32 KB a block, so that several blocks share an SM
//         and one's loads run under another's arithmetic. Limiter: every element goes into shared memory and twice out of
//         it, and a cluster's blocks start together.
// Needs:  whole vectors in a pixel and in some number of groups; a slab of 8 x 64 KB at most; sm_90a's clusters.

#include "dev/groupnorm/slab_normalise.h"
#include "dev/groupnorm/slab_smem.h"

namespace ladder::groupnorm {
namespace {

template <class T, int kUnit, class Act>
__global__ void __launch_bounds__(512)
    groupnorm_forward_v06_kernel(Problem p, Forward::Tensors t, SlabPlan plan, int sums_bytes) {
  LADDER_DYN_SMEM(smem);
  SlabInSmem slab(smem + sums_bytes, plan);
  normalise_slab<T, kUnit, Act, true>(p, t, plan, smem, slab);
}

SlabPlan plan_of(const Problem& p) {
  return plan_slab(p, {.block_bytes = 64 << 10, .good_block_bytes = 32 << 10, .most_cluster = kMaxClusterBlocks});
}

const char* supports(const Problem& p) {
  return plan_of(p).channels > 0 ? nullptr : "no chunk of whole groups is whole 16-byte vectors and at most 8 x 64 KB";
}

void launch(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  const SlabPlan plan = plan_of(p);
  const std::size_t sums_bytes = (slab_sums_bytes(p, plan) + 15) / 16 * 16;
  const LaunchConfig config{.grid = slab_blocks(p, plan),
                            .block = static_cast<unsigned>(plan.threads()),
                            .dynamic_smem = sums_bytes + slab_smem_bytes(plan),
                            .cluster = static_cast<unsigned>(plan.cluster)};
  dispatch_slab(p, [&](auto element, auto unit, auto act) {
    ladder::launch(groupnorm_forward_v06_kernel<decltype(element), decltype(unit)::value, decltype(act)>, config,
                   stream, p, t, plan, sums_bytes);
  });
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Forward, {.launch = ladder::groupnorm::launch,
                                            .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                            .supports = ladder::groupnorm::supports,
                                            .min_arch = 90})

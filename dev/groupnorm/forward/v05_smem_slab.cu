// Idea:   a block keeps all pixels of a chunk of channels in shared memory: one read, one write.
// Parent: v04.
// Why:    v04's second read is from L2 at best, and its second kernel starts when the last block of the first has ended.
//         cp.async brings the whole slab at once, more bytes in flight than registers would hold. Limiter: where an image's
//         slab takes most of an SM's shared memory the SM loads, computes and stores one after the other, and slabs are
//         narrow.
// Needs:  whole vectors in a pixel and in some number of groups; a slab of 192 KB at most; sm_80.

#include "dev/groupnorm/slab_normalise.h"
#include "dev/groupnorm/slab_smem.h"

namespace ladder::groupnorm {
namespace {

template <class T, int kUnit, class Act>
__global__ void __launch_bounds__(512)
    groupnorm_forward_v05_kernel(Problem p, Forward::Tensors t, SlabPlan plan, int sums_bytes) {
  LADDER_DYN_SMEM(smem);
  SlabInSmem slab(smem + sums_bytes, plan);
  normalise_slab<T, kUnit, Act, false>(p, t, plan, smem, slab);
}

// NOTE: a block has 227 KB, which are the slab and 8 bytes for each thread and unit; units of one channel are twice as many.
SlabPlan plan_of(const Problem& p) {
  return plan_slab(p, {.block_bytes = 192 << 10, .most_threads = p.channels_per_group() % 2 == 0 ? 512 : 256});
}

const char* supports(const Problem& p) {
  return plan_of(p).channels > 0 ? nullptr : "no chunk of whole groups is whole 16-byte vectors and at most 192 KB";
}

void launch(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  const SlabPlan plan = plan_of(p);
  const std::size_t sums_bytes = (slab_sums_bytes(p, plan) + 15) / 16 * 16;
  const LaunchConfig config{.grid = slab_blocks(p, plan),
                            .block = static_cast<unsigned>(plan.threads()),
                            .dynamic_smem = sums_bytes + slab_smem_bytes(plan)};
  dispatch_slab(p, [&](auto element, auto unit, auto act) {
    ladder::launch(groupnorm_forward_v05_kernel<decltype(element), decltype(unit)::value, decltype(act)>, config,
                   stream, p, t, plan, sums_bytes);
  });
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Forward, {.launch = ladder::groupnorm::launch,
                                            .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                            .supports = ladder::groupnorm::supports,
                                            .min_arch = 80})

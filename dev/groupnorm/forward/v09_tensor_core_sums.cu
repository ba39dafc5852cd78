// Idea:   the tensor core makes the sums: 8 channels times their own transpose have their sums of squares on the diagonal,
//         and a row of ones has their sums. About zero, where that is exact enough; else about a pivot, as before.
// Parent: v08.
// Why:    v08 spends 28 issue slots an element where 17 are the formula's. A load and two products of a warp here add up
//         256 elements; coefficients are made once a channel instead of once a thread, divisions on the host; and two
//         SiLU of 16-bit types share a reciprocal. Rows of a slab are 128 bytes where they can be, and the chunks of an
//         image run side by side. Limiter: all loads come before all stores, which leaves memory idle in between.
// Needs:  whole vectors in a pixel and in some number of groups; a slab of 8 x 100 KB at most; sm_90's clusters. Slower
//         where a group's mean lies several deviations from zero; fp32 has no products, only the rest.

#include "dev/groupnorm/tensor_core_sums.h"

namespace ladder::groupnorm {
namespace {

using namespace tensor_core_sums;

// Larger clusters leave some SMs idle and give others one block more.
constexpr TuningParameters kTuning{.least_even_cluster = 4};

template <class T, class Act>
__global__ void __launch_bounds__(kMaxThreads, kBlocksPerSm)
    groupnorm_forward_v09_kernel(Problem p, Forward::Tensors t, Plan plan) {
  normalise<T, Act, kMaxClusterBlocks>(
      p, t, plan, [] {}, PlainCopy{});
}

const char* supports(const Problem& p) { return tensor_core_sums::supports(p, plan_of(p, kTuning)); }

std::vector<KernelPlan<Forward>> plans(const Problem& p) {
  const Plan plan = plan_of(p, kTuning);
  KernelPlan<Forward> only{.name = "clusters"};
  dispatch_types(p, [&](auto element, auto act) {
    only.bind = [p, plan, kernel = groupnorm_forward_v09_kernel<decltype(element), decltype(act)>](
                    const Forward::Tensors& t, void*) { return bind_launch(kernel, config_of(p, plan), p, t, plan); };
  });
  return {only};
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Forward, {.plans = ladder::groupnorm::plans,
                                            .plan_names = {"clusters"},
                                            .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                            .supports = ladder::groupnorm::supports,
                                            .min_arch = 90})

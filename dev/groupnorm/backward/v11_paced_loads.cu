// Idea:   clusters of the first wave begin to load one after the other, as fast as memory serves them, instead of all at once.
// Parent: v09.
// Why:    as forward: v09's blocks load together, compute together and store together, and memory idles while they compute.
//         A block that begins later leaves memory to those before it, which then compute while it loads. Later waves begin
//         as blocks end, so they stay apart. Limiter: memory in fp32; in 16-bit types issue slots.
// Needs:  what v09 does.

#include "dev/common/staggered_start.h"
#include "dev/groupnorm/dz_kept.h"

namespace ladder::groupnorm {
namespace {

using namespace dz_kept;

constexpr Costs kCosts{.line = 0.25, .step_ns = 100, .cluster_ns = 700, .seen = 0.3};

template <class T, class Act, bool kCluster>
__global__ void __launch_bounds__(kMaxThreads, kThreadsPerSm / kMaxThreads)
    groupnorm_backward_v11_kernel(Problem p, Backward::Tensors t, Plan plan, StaggeredStart pace, float2* all_sums) {
  const int index = cluster_index(plan.log_cluster);
  gradient<T, Act, kCluster, ChannelSums>(p, t, plan, all_sums, [&] { wait_for_start(pace, index); });
}

std::vector<KernelPlan<Backward>> plans(const Problem& p) {
  KernelPlan<Backward> only{.workspace_bytes = workspace_bytes<ChannelSums>(p)};
  dispatch_types(p, [&](auto element, auto act) {
    using T = decltype(element);
    using Act = decltype(act);
    const Plan plan = plan_of<T, ChannelSums>(
        p, [&](const Plan& candidate) { return plan_ns<T, ChannelSums>(p, candidate, kCosts); });
    only.name = plan.cluster() == 1 ? "single blocks" : "clusters";
    only.bind = [p, plan](const Backward::Tensors& t, void* workspace) {
      auto* const all_sums = p.affine ? static_cast<float2*>(workspace) : nullptr;
      const auto kernel = plan.cluster() == 1 ? groupnorm_backward_v11_kernel<T, Act, false>  //
                                              : groupnorm_backward_v11_kernel<T, Act, true>;
      const LaunchConfig config = config_of<T, ChannelSums>(p, plan);
      const StaggeredStart pace = staggered_start(kernel, config, 2.0 * p.elements() * sizeof(T));
      return in_order({bind_launch(kernel, config, p, t, plan, pace, all_sums),
                       [=](Stream stream) { launch_parameters<true>(p, all_sums, p.n, t, stream); }});
    };
  });
  return {only};
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Backward,
               {.plans = ladder::groupnorm::plans,
                .plan_names = {"single blocks", "clusters"},
                .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                .supports = ladder::groupnorm::dz_kept::supports<ladder::groupnorm::dz_kept::ChannelSums>,
                .min_arch = 90,
                .needs = "whole vectors; slabs that fit in eight blocks' shared memory"})

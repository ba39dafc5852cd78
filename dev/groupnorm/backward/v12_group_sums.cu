// Idea:   clusters of up to 16 blocks, which send each other sums of groups instead of channels; dgamma and dbeta are added up
//         while dx is being written.
// Parent: v11.
// Why:    rows of 128 bytes are what the L2 wants: it looks up a line for every row of a chunk, and v11's rows of 32 to 64
//         bytes keep it busy for 70 to 80 % of the time. 16 blocks hold twice as wide a chunk. dx needs sums of groups only;
//         those of a channel go to one block of the cluster, which leaves them for the second kernel, which takes each as
//         soon as it is there. Shared memory leaves an SM some 16 warps, so the first ones add up and send, and the lanes of
//         each share out what has come. What the channels need is asked for in front of x and dy, or it comes behind them.
//         Limiter: memory in fp32; in 16-bit types issue slots.
// Needs:  what v11 does; clusters of 16 where the card has them.

#include "dev/common/staggered_start.h"
#include "dev/groupnorm/group_sums.h"

namespace ladder::groupnorm {
namespace {

using namespace dz_kept;

template <class T, class Act, bool kCluster>
__global__ void __launch_bounds__(kMaxThreads, kThreadsPerSm / kMaxThreads)
    groupnorm_backward_v12_kernel(Problem p, Backward::Tensors t, Plan plan, StaggeredStart pace, FlaggedRow* rows) {
  const int index = cluster_index(plan.log_cluster);
  gradient<T, Act, kCluster, GroupSums>(p, t, plan, rows, [&] { wait_for_start(pace, index); });
}

__global__ void __launch_bounds__(kParameterThreads)
    groupnorm_backward_v12_parameters_kernel(FlaggedRow* all, int rows, int c, float* dgamma, float* dbeta) {
  add_flagged_rows(all, rows, c, dgamma, dbeta);
}

std::vector<KernelPlan<Backward>> plans(const Problem& p) {
  KernelPlan<Backward> only{.workspace_bytes = workspace_bytes<GroupSums>(p)};
  dispatch_types(p, [&](auto element, auto act) {
    using T = decltype(element);
    using Act = decltype(act);
    const Plan plan = plan_for<T, GroupSums>(p);
    only.name = plan.cluster() == 1 ? "single blocks" : "clusters";
    only.bind = [p, plan](const Backward::Tensors& t, void* workspace) {
      auto* const rows = p.affine ? static_cast<FlaggedRow*>(workspace) : nullptr;
      const auto kernel = plan.cluster() == 1 ? groupnorm_backward_v12_kernel<T, Act, false>  //
                                              : groupnorm_backward_v12_kernel<T, Act, true>;
      const LaunchConfig config = config_of<T, GroupSums>(p, plan);
      const StaggeredStart pace = staggered_start(kernel, config, 2.0 * p.elements() * sizeof(T));
      std::vector<BoundLaunch> launches = {bind_launch(kernel, config, p, t, plan, pace, rows)};
      if (p.affine) {
        launches.push_back(bind_launch(groupnorm_backward_v12_parameters_kernel,
                                       {.grid = static_cast<unsigned>(parameter_blocks(p.c)),
                                        .block = kParameterThreads,
                                        .overlaps_previous = true},
                                       rows, p.n, p.c, t.dgamma, t.dbeta));
      }
      return in_order(std::move(launches));
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
                .supports = ladder::groupnorm::dz_kept::supports<ladder::groupnorm::dz_kept::GroupSums>,
                .private_workspace = true,
                .min_arch = 90,
                .needs = "whole vectors; slabs that fit in the shared memory of a cluster"})

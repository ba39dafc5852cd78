// Idea:   clusters of up to 16 blocks, which send each other sums of groups instead of channels; dgamma and dbeta are added up
//         while dx is being written.
// Parent: v11.
// Why:    rows of 128 bytes are what the L2 wants: it looks up a line for every row of a chunk, and v11's rows of 32 to 64
//         bytes keep it busy for 70 to 80 % of the time. 16 blocks hold twice as wide a chunk. dx needs sums of groups only;
//         those of a channel go to one block of the cluster, which leaves them for the second kernel, which takes each as
//         soon as it is there. What the channels need is asked for in front of x and dy, or it comes behind them. Limiter:
//         memory in fp32; in 16-bit types issue slots.
// Needs:  what v11 does; clusters of 16 where the card has them.

#include "dev/groupnorm/group_sums.h"
#include "dev/groupnorm/pace.h"

namespace ladder::groupnorm {
namespace {

using namespace dz_kept;

// Each block has a row of groups for what it gets of a rank.
struct RankRows : GroupSums {
  static __host__ __device__ int group_entries(const Plan& plan) { return plan.groups << plan.log_cluster; }
  static int bytes(const Plan& plan) { return GroupSums::bytes(plan, group_entries(plan)); }
  __device__ __forceinline__ RankRows(unsigned char* smem, const Plan& plan)
      : GroupSums(smem, plan, group_entries(plan)) {}

  template <bool kCluster>
  __device__ __forceinline__ void correct(const Problem& p, const Plan& plan, const Place& place, Row* rows,
                                          float (&offset)[kQuad], float (&slope)[kQuad]) const {
    const int owned = rows && kCluster ? GroupSums::owned(plan, place) : 0;
    exchange<kCluster, 2>(
        p, plan, place, rows, owned, plan.log_team, 0,  //
        [&](int group) { return groups + place.rank * plan.groups + group; },
        [&](int channel) { return channels + place.rank * most_owned(plan) + (channel >> plan.log_cluster); });

#pragma unroll 1
    for (int i = threadIdx.x; i < owned; i += plan.threads()) {
      const float2 sum = sum_column(channels, plan.cluster(), most_owned(plan), i);
      leave(rows, p, plan, place, (i << plan.log_cluster) + place.rank, sum);
    }
    Correction correction;
    for_channels(plan, place, [&](int i, int group, bool is_new) {
      if (is_new) {
        const float2 sum = sum_column(groups, plan.cluster(), plan.groups, group);
        correction.offset = -plan.inverse_m * sum.x;
        correction.slope = -plan.inverse_m * rstd[group] * rstd[group] * sum.y;
      }
      offset[i] = correction.offset, slope[i] = correction.slope;
    });
  }
};

template <class T, class Act, bool kCluster>
__global__ void __launch_bounds__(kMostThreads, kThreadsPerSm / kMostThreads)
    groupnorm_backward_v12_kernel(Problem p, Backward::Tensors t, Plan plan, Pace pace, MarkedRow* rows) {
  const int index = cluster_index(plan.log_cluster);
  gradient<T, Act, kCluster, RankRows>(p, t, plan, rows, [&] { wait_for_turn(pace, index); });
}

__global__ void __launch_bounds__(kParameterThreads)
    groupnorm_backward_v12_parameters_kernel(MarkedRow* all, int rows, int c, float* dgamma, float* dbeta) {
  add_marked_rows(all, rows, c, dgamma, dbeta);
}

void launch(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  auto* const rows = p.affine ? static_cast<MarkedRow*>(workspace) : nullptr;
  dispatch_types(p, [&](auto element, auto act) {
    using T = decltype(element);
    using Act = decltype(act);
    const Plan plan = plan_for<T, RankRows>(p);
    const auto kernel = plan.cluster() == 1 ? groupnorm_backward_v12_kernel<T, Act, false>  //
                                            : groupnorm_backward_v12_kernel<T, Act, true>;
    const LaunchConfig config = config_of<T, RankRows>(p, plan);
    const Pace pace = pace_of(kernel, config, 2.0 * p.elements() * sizeof(T));
    ladder::launch(kernel, config, stream, p, t, plan, pace, rows);
  });
  if (!p.affine) return;
  ladder::launch(
      groupnorm_backward_v12_parameters_kernel,
      {.grid = static_cast<unsigned>(parameter_blocks(p.c)), .block = kParameterThreads, .overlaps_previous = true},
      stream, rows, p.n, p.c, t.dgamma, t.dbeta);
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Backward,
               {.launch = ladder::groupnorm::launch,
                .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                .supports = ladder::groupnorm::dz_kept::supports<ladder::groupnorm::RankRows>,
                .workspace_bytes = ladder::groupnorm::dz_kept::workspace_bytes<ladder::groupnorm::RankRows>,
                .min_arch = 90,
                .needs = "whole vectors; slabs that fit in the shared memory of a cluster"})

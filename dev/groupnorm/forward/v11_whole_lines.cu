// Idea:   clusters of up to 16 blocks, so that rows are whole lines of the L2 and blocks still small; loads that leave the L2
//         before anything else does.
// Parent: v10.
// Why:    v10's rows of 64 and 96 bytes, which eight blocks have room for, share lines of 128 with other chunks'. Each is
//         looked up twice, and what has gone by then is fetched twice. Loads that are evicted first leave the L2 to what is
//         there, as long as all of it finds room. Limiter: as v10's.
// Needs:  what v10 does; clusters of 16 where the card has them.

#include <cmath>
#include <limits>

#include "dev/common/staggered_start.h"
#include "dev/groupnorm/tensor_core_sums.h"
#include "dev/ptx/cache_policy.h"

namespace ladder::groupnorm {
namespace {

using namespace tensor_core_sums;

template <class T, class Act>
__global__ void __launch_bounds__(kMaxThreads, kBlocksPerSm)
    groupnorm_forward_v11_kernel(Problem p, Forward::Tensors t, Plan plan, StaggeredStart pace, bool reads_once) {
  const int index = cluster_index(plan.log_cluster);
  const ptx::CachePolicy policy = ptx::evict_policy(reads_once);
  normalise<T, Act, kMaxBigClusterBlocks>(
      p, t, plan, [&] { wait_for_start(pace, index); },
      [&](void* to, const void* from) { ptx::cp_async_16(to, from, true, policy); });
}

// A plan's time, roughly, to compare plans; infinity: it does not fit. Fitted to a sweep of all of them for the shapes of
// `perf` on an H200: waves of blocks take turns, or memory is what they wait for.
double plan_ns(const Problem& p, const Plan& plan) {
  constexpr double kBytesPerNs = 32;  // that an SM gets of memory when all ask for some
  constexpr double kLineBytes = 128;  // that memory and caches move at best
  constexpr double kLine = 2;         // what the rest of a row's line costs, of what it would if it were needed
  constexpr double kBlockNs = 3800;   // of a block, whatever it does
  constexpr double kWarpNs = 160;     // more for each of its warps
  constexpr double kClusterNs = 550;  // more for a cluster than for one of half its blocks
  constexpr double kElementNs = 22;   // of a thread, on an SM full of threads
  constexpr double kAlone = 0.7;      // of that, on an empty one
  constexpr double kLast = 0.83;      // of a block, that nothing hides
  constexpr int kThreadsPerSm = kMaxThreads * kBlocksPerSm;

  const Turns turns = turns_of(p.n * (p.c / plan.channels), plan.cluster(), plan.threads,
                               static_cast<int>(slab_bytes(plan)) + sums_bytes(plan), kThreadsPerSm);
  if (turns.most_blocks == 0) return std::numeric_limits<double>::infinity();
  const double bytes = static_cast<double>(slab_bytes(plan));
  const double lines = 1 + kLine * std::max(0.0, kLineBytes / (16.0 * plan.row) - 1);
  const double traffic = 2 * turns.blocks * bytes * lines / kBytesPerNs;
  const double filled = std::min<double>(turns.most_blocks, std::ceil(turns.blocks)) * plan.threads / kThreadsPerSm;
  const double elements = bytes / static_cast<double>(size_of(p.dtype)) / plan.threads;
  const double block = kBlockNs + plan.threads / 32 * kWarpNs + plan.log_cluster * kClusterNs +
                       elements * kElementNs * (kAlone + (1 - kAlone) * filled);
  return std::max(traffic, turns.waves * block) + kLast * block;
}

Plan plan_for(const Problem& p) {
  constexpr int kMaxSlabBytes = 200 << 10;
  constexpr int kMaxClusterThreads = 3072;  // more gain nothing
  Plan best;
  double lowest = std::numeric_limits<double>::infinity();
  for (int groups = 1; groups <= p.g; ++groups) {
    const std::optional<Plan> chunk = chunk_of(p, groups);
    if (!chunk) continue;
    for (int log_cluster = 0; 1 << log_cluster <= most_cluster_blocks(); ++log_cluster) {
      Plan plan = *chunk;
      plan.log_cluster = log_cluster;
      plan.pixels = ceil_div(p.pixels(), plan.cluster());
      plan.tiles = ceil_div(plan.pixels, kTile);
      if (slab_bytes(plan) > kMaxSlabBytes) continue;
      for (plan.threads = thread_step(plan); plan.threads <= std::min(kMaxThreads, kMaxClusterThreads >> log_cluster);
           plan.threads += thread_step(plan)) {
        complete(p, plan);
        const double ns = plan_ns(p, plan);
        if (ns < lowest) best = plan, lowest = ns;
      }
    }
  }
  return best;
}

const char* supports(const Problem& p) { return tensor_core_sums::supports(p, plan_for(p)); }

std::vector<KernelPlan<Forward>> plans(const Problem& p) {
  const Plan plan = plan_for(p);
  KernelPlan<Forward> only{.name = "clusters"};
  dispatch_types(p, [&](auto element, auto act) {
    only.bind = [p, plan, kernel = groupnorm_forward_v11_kernel<decltype(element), decltype(act)>](
                    const Forward::Tensors& t, void*) {
      const LaunchConfig config = config_of(p, plan);
      const double bytes = double(p.elements()) * static_cast<double>(size_of(p.dtype));
      const StaggeredStart pace = staggered_start(kernel, config, bytes);
      return bind_launch(kernel, config, p, t, plan, pace, fits_l2(2 * bytes));
    };
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

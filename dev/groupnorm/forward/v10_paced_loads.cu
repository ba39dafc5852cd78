// Idea:   clusters of the first wave begin to load one after the other, as fast as memory serves them, instead of all at once.
// Parent: v09.
// Why:    v09's blocks load together, compute together and store together: memory idles while they compute. A block that
//         begins later leaves memory to those before it, which then compute while it loads. That works on whole blocks, so
//         there are at least three an SM, by larger clusters or narrower rows. Limiter: memory in fp32; in 16-bit types
//         still arithmetic and the exchange, of the blocks that load last.
// Needs:  what v09 does.

#include "dev/common/staggered_start.h"
#include "dev/groupnorm/tensor_core_sums.h"

namespace ladder::groupnorm {
namespace {

using namespace tensor_core_sums;

template <class T, class Act>
__global__ void __launch_bounds__(kMaxThreads, kBlocksPerSm)
    groupnorm_forward_v10_kernel(Problem p, Forward::Tensors t, Plan plan, StaggeredStart pace) {
  const int index = cluster_index(plan.log_cluster);
  normalise<T, Act, kMaxClusterBlocks>(
      p, t, plan, [&] { wait_for_start(pace, index); }, PlainCopy{});
}

constexpr TuningParameters kTuning{
    .least_even_cluster = 1, .least_pixels = 256, .good_threads = 384, .column_threads = 128};

const char* supports(const Problem& p) { return tensor_core_sums::supports(p, plan_of(p, kTuning)); }

std::vector<KernelPlan<Forward>> plans(const Problem& p) {
  const Plan plan = plan_of(p, kTuning);
  KernelPlan<Forward> only{.name = "clusters"};
  dispatch_types(p, [&](auto element, auto act) {
    only.bind = [p, plan, kernel = groupnorm_forward_v10_kernel<decltype(element), decltype(act)>](
                    const Forward::Tensors& t, void*) {
      const LaunchConfig config = config_of(p, plan);
      const StaggeredStart pace = staggered_start(kernel, config, double(p.elements()) * sizeof(decltype(element)));
      return bind_launch(kernel, config, p, t, plan, pace);
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

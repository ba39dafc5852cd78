// Idea:   dz is computed once and kept, as fp32, in shared memory: in dy's place and, for 16-bit types, as much again.
// Parent: v08.
// Why:    v08 computes the derivative twice: 31 issue slots an element in its loops, about 9 more outside of them, four
//         instructions of the special function unit, 32 clocks of a quarter of an SM. Here it is 23, 6 and 16. A thread
//         has four channels instead of eight, so 80 registers are enough, and slabs are small: two or three blocks an
//         SM at 64x64, one of which loads while another computes. The host divides, shuffles add up, and blocks send
//         their sums by st.async. Limiter: shared memory, 6 bytes an element (8 for fp32).
// Needs:  c in whole vectors of sixteen bytes, a slab that fits in eight blocks' shared memory, at most 65535 images,
//         clusters (sm_90); a workspace of two floats a channel of every image.

#include "dev/groupnorm/dz_kept.h"

namespace ladder::groupnorm {
namespace {

using namespace dz_kept;

// A quarter more or less of each gives plans as good.
constexpr Costs kCosts{.line = 0.25, .step_ns = 70, .cluster_ns = 1000, .seen = 0.5, .in_step = true};

template <class T, class Act, bool kCluster>
__global__ void __launch_bounds__(kMaxThreads, kThreadsPerSm / kMaxThreads)
    groupnorm_backward_v09_kernel(Problem p, Backward::Tensors t, Plan plan, float2* all_sums) {
  gradient<T, Act, kCluster, ChannelSums>(p, t, plan, all_sums, [] {});
}

void launch(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  auto* const all_sums = p.affine ? static_cast<float2*>(workspace) : nullptr;
  dispatch_types(p, [&](auto element, auto act) {
    using T = decltype(element);
    using Act = decltype(act);
    const Plan plan = plan_of<T, ChannelSums>(
        p, [&](const Plan& candidate) { return plan_ns<T, ChannelSums>(p, candidate, kCosts); });
    const auto kernel = plan.cluster() == 1 ? groupnorm_backward_v09_kernel<T, Act, false>  //
                                            : groupnorm_backward_v09_kernel<T, Act, true>;
    ladder::launch(kernel, config_of<T, ChannelSums>(p, plan), stream, p, t, plan, all_sums);
  });
  launch_parameters<true>(p, all_sums, p.n, t, stream);
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Backward,
               {.launch = ladder::groupnorm::launch,
                .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                .supports = ladder::groupnorm::dz_kept::supports<ladder::groupnorm::dz_kept::ChannelSums>,
                .workspace_bytes = ladder::groupnorm::dz_kept::workspace_bytes<ladder::groupnorm::dz_kept::ChannelSums>,
                .min_arch = 90,
                .needs = "whole vectors; slabs that fit in eight blocks' shared memory"})

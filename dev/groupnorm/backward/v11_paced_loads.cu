// Idea:   clusters of the first wave begin to load one after the other, as fast as memory serves them, instead of all at once.
// Parent: v09.
// Why:    as forward: v09's blocks load together, compute together and store together, and memory idles while they compute.
//         A block that begins later leaves memory to those before it, which then compute while it loads. Later waves begin
//         as blocks end, so they stay apart. Limiter: memory in fp32; in 16-bit types issue slots.
// Needs:  what v09 does.

#include "dev/common/staggered_start.h"
#include "dev/groupnorm/channel_sums.h"
#include "dev/groupnorm/parameter_gradients.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::groupnorm {
namespace {

using namespace dz_kept;

constexpr Needs kNeeds{.sums_bytes = ChannelSums::bytes};
constexpr Costs kCosts{.line = 0.25, .step_ns = 100, .cluster_ns = 700, .seen = 0.3};

template <class T, class Act, bool kCluster>
__global__ void __launch_bounds__(kMaxThreads, kThreadsPerSm / kMaxThreads)
    groupnorm_backward_v11_kernel(Problem p, Backward::Tensors t, Plan plan, StaggeredStart start, float2* rows) {
  using Layout = SlabLayout<T>;
  LADDER_DYN_SMEM(raw);
  const ChannelSums smem(raw + Layout::bytes(plan), plan);
  const Place place(p, plan);
  if constexpr (kCluster) {
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(smem.arrived, 1);
      ptx::mbarrier_fence_init();
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();  // this block has started
  }
  wait_for_start(start, cluster_index(plan.log_cluster));

  // beta is asked for first: after x and dy in the queues to memory it would come last.
  float beta[kQuad] = {};
  if (t.beta) load_quad(t.beta + place.chunk * plan.chunk + place.column * kQuad, beta);

  // x and dy: everything is on its way at once, in two groups. A pixel past the block's last one has the x of that and a dy of
  // zero, so that it adds nothing.
  unsigned char* const slab = raw + place.warp * plan.steps * Layout::kStepBytes;  // of the warp
  {
    const int sharer = place.lane % Layout::kSharers;
    const int at = place.image_at + (place.column - sharer) * kQuad;
    unsigned char* to = slab + sharer * Layout::kStepBytes + place.lane / Layout::kSharers * 16;
    int pixel = place.first + sharer * plan.rows;
    int step = sharer;
#pragma unroll 1
    for (int group = 0; group < 2; ++group) {
      const int until = group == 0 ? plan.half : plan.steps;
#pragma unroll 4
      for (; step < until; step += Layout::kSharers) {
        const int from = at + min(pixel, place.end - 1) * p.c;
        ptx::cp_async<16>(to, static_cast<const T*>(t.x) + from, true);
        ptx::cp_async<16>(to + Layout::kDz, static_cast<const T*>(t.dy) + from, pixel < place.end);
        pixel += Layout::kSharers * plan.rows;
        to += Layout::kSharers * Layout::kStepBytes;
      }
      ptx::cp_async_commit();
    }
  }
  ptx::grid_dependency_launch();

  load_channels(p, t, plan, place, smem);
  __syncthreads();
  float mean[kQuad];
  float scale[kQuad];
  load_quad(smem.mean + place.column * kQuad, mean);
  load_quad(smem.scale + place.column * kQuad, scale);

  // dz takes dy's place, and a thread adds up two sums of each of its channels; then the rows of the block add up theirs.
  unsigned char* const own = slab + place.lane * Layout::kQuadBytes;  // the thread's x
  unsigned char* const own_dz = slab + Layout::dz_at(place.lane);
  float sums[2 * kQuad] = {};
  make_dz<T, Act>(plan, own, own_dz, mean, scale, beta, sums);
  sum_rows<false>({plan.quads, plan.chunk, plan.rows, plan.senders, plan.parts}, smem.parts, place.row, place.column,
                  sums);
  __syncthreads();

  // Every block gets the sums of all, and makes what its groups take off dx.
  if constexpr (kCluster) {
    ptx::cluster_wait();  // all blocks have started
    if (threadIdx.x == 0) {
      ptx::mbarrier_arrive_expect_tx(smem.arrived, (plan.chunk << plan.log_cluster) * sizeof(float2));
    }
    send_channels(plan, place, smem);
    __syncthreads();  // nobody reads the parts any more
    ptx::mbarrier_wait_cluster(smem.arrived, 0);
    correct_groups(p, plan, place, smem, smem.exchange, plan.cluster(), rows);
  } else {
    correct_groups(p, plan, place, smem, smem.parts, plan.parts, rows);
  }
  float offset[kQuad];
  float slope[kQuad];
#pragma unroll
  for (int i = 0; i < kQuad; ++i) {
    const Correction correction = smem.corrections[place.column * kQuad + i];
    offset[i] = correction.offset, slope[i] = correction.slope;
  }

  // dx, two pixels at a time.
  int to = place.image_at + place.first * p.c + place.column * kQuad;
  int at = 0;
  const auto write = [&](int s) {
    float x[kQuad];
    float dz[kQuad];
    float dx[kQuad];
    unpack_quad<T>(*reinterpret_cast<const Quad<T>*>(own + at + s * Layout::kStepBytes), x);
    load_quad(reinterpret_cast<const float*>(own_dz + at + s * Layout::kStepBytes), dz);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      dx[i] = dx_of({.scale = scale[i]}, {.offset = offset[i], .slope = slope[i]}, x[i] - mean[i], dz[i]);
    }
    *reinterpret_cast<Quad<T>*>(static_cast<T*>(t.dx) + to + s * plan.rows * p.c) = pack_quad<T>(dx);
  };
  int pixel = place.first;
#pragma unroll 1
  for (; pixel + plan.rows < place.end; pixel += 2 * plan.rows) {
    write(0);
    write(1);
    to += 2 * plan.rows * p.c;
    at += 2 * Layout::kStepBytes;
  }
  if (pixel < place.end) write(0);
}

const char* supports(const Problem& p) {
  if (const char* const why = fp32_parameters_only(p)) return why;
  return dz_kept::supports(p, kNeeds);
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * p.n * p.c; }

std::vector<KernelPlan<Backward>> plans(const Problem& p) {
  const Plan plan = plan_of(p, kNeeds, kCosts);
  KernelPlan<Backward> only{.name = plan.cluster() == 1 ? "single blocks" : "clusters",
                            .workspace_bytes = workspace_bytes(p)};
  dispatch_types(p, [&](auto element, auto act) {
    using T = decltype(element);
    using Act = decltype(act);
    only.bind = [p, plan](const Backward::Tensors& t, void* workspace) {
      auto* const rows = p.affine ? static_cast<float2*>(workspace) : nullptr;                // [n][c]
      const auto kernel = plan.cluster() == 1 ? groupnorm_backward_v11_kernel<T, Act, false>  //
                                              : groupnorm_backward_v11_kernel<T, Act, true>;
      const LaunchConfig config{
          .grid = {static_cast<unsigned>(p.c / plan.chunk * plan.cluster()), static_cast<unsigned>(p.n)},
          .block = static_cast<unsigned>(plan.threads()),
          .dynamic_smem = static_cast<std::size_t>(smem_bytes(p, plan, kNeeds)),
          .cluster = static_cast<unsigned>(plan.cluster())};
      const StaggeredStart start = staggered_start(kernel, config, 2.0 * p.elements() * sizeof(T));
      return in_order({bind_launch(kernel, config, p, t, plan, start, rows),
                       [=](Stream stream) { launch_parameters(p, rows, p.n, t, stream, true); }});
    };
  });
  return {only};
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Backward, {.plans = ladder::groupnorm::plans,
                                             .plan_names = {"single blocks", "clusters"},
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                             .supports = ladder::groupnorm::supports,
                                             .min_arch = 90,
                                             .needs = "whole vectors; slabs that fit in eight blocks' shared memory"})

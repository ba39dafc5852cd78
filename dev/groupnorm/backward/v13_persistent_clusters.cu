// Idea:   persistent clusters, which load the next slab while they write dx of this one.
// Parent: v12.
// Why:    a cluster starts when 16 blocks have ended, a microsecond after the first of them, and only then begins to
//         load. A persistent cluster loads each step of its next slab as soon as it has read this slab's step: its
//         warps hardly wait for memory. Limiter: no one thing. 16 warps an SM wait for each other in a quarter of the
//         time; issue slots are busy for two thirds of it, the L2 for three quarters.
// Needs:  what v12 does; 16-bit types, as v12 is as fast or faster in fp32; with `split`, fp32 parameters.

#include "dev/common/staggered_start.h"
#include "dev/groupnorm/group_sums.h"
#include "dev/groupnorm/persistent_slabs.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::groupnorm {
namespace {

using namespace dz_kept;

constexpr Needs kNeeds{
    .sums_bytes = GroupSums::bytes, .group_sums = true, .threads_per_sm = kPersistentThreadsPerSm, .split = true};

// Writes a thread's dx of a slab, dx_of_quad(x, dz) for each of its quads. kRefills: copies the next slab over the
// quads that have been read.
template <class T, bool kRefills, bool kSplit, class F>
__device__ __forceinline__ void write(const Problem& p, const Backward::Tensors& t, const Plan& plan,
                                      const Place& place, const Place& next, ptx::CachePolicy policy,
                                      unsigned char* slab, const F& dx_of_quad) {
  using Layout = SlabLayout<T>;
  const int own = place.lane * Layout::kQuadBytes;
  const int own_dz = Layout::dz_at(place.lane);
  using SlabCopies = Copies<T, kSplit>;
  const int own_copies = SlabCopies::place_of(place.lane);
  SlabCopies copies(p, plan, next);
  const int row = plan.rows * p.c;
  T* to = static_cast<T*>(t.dx) + (place.image * p.h * p.w + place.first) * p.c + place.chunk * plan.chunk +
          place.column * kQuad;
  int pixels = place.end - place.first;
  int left = plan.half;
#pragma unroll 1
  for (int group = 0; group < 2; ++group) {
#pragma unroll 1
    for (; left > 0; left -= kStepsAtOnce, slab += SlabCopies::kPairBytes) {
      Quad<T> x[kStepsAtOnce];
      float dz[kStepsAtOnce][kQuad];
#pragma unroll
      for (int s = 0; s < kStepsAtOnce; ++s) {
        x[s] = *reinterpret_cast<const Quad<T>*>(slab + own + s * Layout::kStepBytes);
        load_quad(reinterpret_cast<const float*>(slab + own_dz + s * Layout::kStepBytes), dz[s]);
      }
      if constexpr (kRefills) {
        __syncwarp();  // the thread that shares the vectors has read them
        copies.start(p, t, plan, place, slab + own_copies, policy);
      }
      Quad<T> dx[kStepsAtOnce];
#pragma unroll
      for (int s = 0; s < kStepsAtOnce; ++s) dx[s] = dx_of_quad(x[s], dz[s]);
#pragma unroll
      for (int s = 0; s < kStepsAtOnce; ++s) {
        if (pixels > s * plan.rows) *reinterpret_cast<Quad<T>*>(to + s * row) = dx[s];
      }
      to += kStepsAtOnce * row;
      pixels -= kStepsAtOnce * plan.rows;
    }
    if constexpr (kRefills) ptx::cp_async_commit();
    left = plan.steps - plan.half;
  }
}

template <class T, class Act, class P, bool kCluster, bool kSplit>
__global__ void __launch_bounds__(kPersistentThreadsPerSm)
    groupnorm_backward_v13_kernel(Problem p, Backward::Tensors t, Plan plan, Rounds rounds, StaggeredStart start,
                                  FlaggedRow* rows) {
  using Layout = SlabLayout<T>;
  LADDER_DYN_SMEM(raw);
  const GroupSums smem(raw + Layout::bytes(plan), plan);
  const ptx::CachePolicy policy = ptx::evict_policy(plan.reads_once);
  Place place(p, plan);
  if constexpr (kCluster) {
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(smem.arrived, 1);
      ptx::mbarrier_fence_init();
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();  // this block has started
  }
  int slab_index = static_cast<int>(blockIdx.x) >> plan.log_cluster;
  ptx::grid_dependency_wait();
  wait_for_start(start, slab_index);
  place.image = slab_index / rounds.chunks;
  place.chunk = slab_index - place.image * rounds.chunks;

  // Load the channels' constants first: behind x and dy in the queues to memory they would arrive last.
  const int first_channel = min(static_cast<int>(threadIdx.x), plan.chunk - 1);
  Fetched fetched = fetch_channel<P>(p, t, plan, place, first_channel);
  float beta[kQuad] = {};
  const auto load_beta = [&](int chunk) {
    if (t.beta) load_parameters(typed<P>(t.beta) + chunk * plan.chunk + place.column * kQuad, beta);
  };
  load_beta(place.chunk);

  unsigned char* const slab = raw + place.warp * plan.steps * Layout::kStepBytes;  // of the warp
  load_slab<T, kSplit>(p, t, plan, place, slab, policy);

#pragma unroll 1
  for (unsigned parity = 0;; parity ^= 1) {
    slab_index += rounds.clusters;
    const bool is_last = slab_index >= rounds.slabs;
    if (is_last) ptx::grid_dependency_launch();

      // Store the constants of the chunk's channels in shared memory, once a block.
#pragma unroll 1
    for (int i = threadIdx.x; i < plan.chunk; i += plan.threads()) {
      const int group = group_of(plan, i);
      if (i >= plan.threads()) fetched = fetch_channel<P>(p, t, plan, place, i);
      if (i == group * plan.width) smem.mean[group] = fetched.mean, smem.rstd[group] = fetched.rstd;
      smem.scale[i] = fetched.rstd * fetched.gamma;
    }
    __syncthreads();
    float mean[kQuad];
    float scale[kQuad];
    for_channels(plan, place, [&](int i, int group) { mean[i] = smem.mean[group]; });
    load_quad(smem.scale + place.column * kQuad, scale);

    // Overwrite dy with dz and add up two sums of each of the thread's channels.
    float sums[2 * kQuad] = {};
    make_dz<T, Act>(plan, slab + place.lane * Layout::kQuadBytes, slab + Layout::dz_at(place.lane), mean, scale, beta,
                    sums);

    // Load the constants of the next slab's channels.
    Place next = place;
    if (!is_last) {
      advance(rounds, next);
      fetched = fetch_channel<P>(p, t, plan, next, first_channel);
      load_beta(next.chunk);
    }
    sum_rows<true>({plan.quads, plan.chunk, plan.rows, plan.senders, plan.parts}, smem.parts, place.row, place.column,
                   sums);
    __syncthreads();

    // Send sums of groups to every block of the cluster, sums of a channel to its owner.
    if constexpr (kCluster) {
      ptx::cluster_wait();  // all blocks have started, or have read their previous sums
      if (threadIdx.x == 0) {
        const int expected = plan.groups + (rows ? GroupSums::owned(plan, place.rank) : 0);
        ptx::mbarrier_arrive_expect_tx(smem.arrived, (expected << plan.log_cluster) * sizeof(float2));
      }
    }
    send_groups<kCluster>(p, plan, place, smem, rows);
    if constexpr (kCluster) {
      ptx::mbarrier_wait_cluster(smem.arrived, parity);
    } else {
      __syncthreads();
    }
    float offset[kQuad];
    float slope[kQuad];
    add_ranks(plan, place, smem, offset, slope);

    // Finish the block's own channels by its last threads: the first ones had the most to do.
    if (kCluster && rows) {
#pragma unroll 1
      for (int i = plan.threads() - 1 - static_cast<int>(threadIdx.x); i < GroupSums::owned(plan, place.rank);
           i += plan.threads()) {
        const int first = i << plan.log_cluster;
        const float2 sum = sum_column(smem.channels + first, plan.cluster(), 1, 0);
        leave_channel(p, plan, place, smem, rows, first + place.rank, sum);
      }
    }

    // Write dx, and copy the next slab's x and dy over the quads that have been read.
    const auto dx_of_quad = [&](const Quad<T>& x_bits, const float(&dz)[kQuad]) {
      float x[kQuad];
      float dx[kQuad];
      unpack_quad<T>(x_bits, x);
#pragma unroll
      for (int i = 0; i < kQuad; ++i) {
        dx[i] = dx_of({.scale = scale[i]}, {.offset = offset[i], .slope = slope[i]}, x[i] - mean[i], dz[i]);
      }
      return pack_quad<T>(dx);
    };
    if (is_last) {
      write<T, false, kSplit>(p, t, plan, place, next, policy, slab, dx_of_quad);
      return;
    }
    write<T, true, kSplit>(p, t, plan, place, next, policy, slab, dx_of_quad);
    if constexpr (kCluster) ptx::cluster_arrive_relaxed();  // this block has read its sums
    __syncthreads();
    place.image = next.image, place.chunk = next.chunk;
  }
}

const char* supports(const Problem& p) {
  const char* const why = p.split != 0 ? fp32_parameters_only(p) : nullptr;
  return why ? why : dz_kept::supports(p, kNeeds);
}

template <class T, class Act, class P, bool kSplit>
BoundLaunch bind(const Problem& p, const Backward::Tensors& t, const Plan& plan, FlaggedRow* rows) {
  const auto kernel = plan.cluster() == 1 ? groupnorm_backward_v13_kernel<T, Act, P, false, kSplit>  //
                                          : groupnorm_backward_v13_kernel<T, Act, P, true, kSplit>;
  LaunchConfig config{.grid = {static_cast<unsigned>(p.c / plan.chunk * plan.cluster()), static_cast<unsigned>(p.n)},
                      .block = static_cast<unsigned>(plan.threads()),
                      .dynamic_smem = static_cast<std::size_t>(smem_bytes(p, plan, kNeeds)),
                      .cluster = static_cast<unsigned>(plan.cluster()),
                      .overlaps_previous = true};
  const StaggeredStart start = staggered_start(kernel, config, 2.0 * p.elements() * sizeof(T));
  const Rounds rounds = rounds_of(p, plan, resident_clusters(kernel, config));
  config.grid = static_cast<unsigned>(rounds.clusters * plan.cluster());
  return with_parameters(bind_launch(kernel, config, p, t, plan, rounds, start, rows), p, rows, t);
}

std::vector<KernelPlan<Backward>> plans(const Problem& p) {
  const Plan plan = plan_of_turns(p, kNeeds);
  KernelPlan<Backward> only{.name = plan.cluster() == 1 ? "single blocks" : "clusters",
                            .workspace_bytes = sizeof(FlaggedRow) * p.n * p.c};
  const auto with_type = [&](auto element) {
    using T = decltype(element);
    dispatch(p.activation, [&](auto act) {
      dispatch_parameters<T>(p, [&](auto parameter) {
        only.bind = [p, plan](const Backward::Tensors& t, void* workspace) {
          auto* const rows = p.affine ? static_cast<FlaggedRow*>(workspace) : nullptr;  // [n][c]
          using Act = decltype(act);
          if (p.split != 0) return bind<T, Act, float, true>(p, t, plan, rows);
          return bind<T, Act, decltype(parameter), false>(p, t, plan, rows);
        };
      });
    });
  };
  p.dtype == Dtype::bf16 ? with_type(__nv_bfloat16()) : with_type(__half());
  return {only};
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Backward,
               {.plans = ladder::groupnorm::plans,
                .plan_names = {"single blocks", "clusters"},
                .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                .supports = ladder::groupnorm::supports,
                .private_workspace = true,
                .min_arch = 90,
                .needs = "whole vectors; slabs that fit in the shared memory of a cluster"})

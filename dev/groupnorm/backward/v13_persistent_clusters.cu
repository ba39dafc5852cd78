// Idea:   persistent clusters load their next slab, an image's chunk of channels, while they write dx of this one.
// Parent: v12.
// Why:    v12's cluster starts when 16 blocks have ended, well after the first of them, and only then begins
//         to load. A persistent cluster copies a step of its next slab over the same step of this slab as soon as it
//         has read that: its warps hardly wait for memory. Limiter: no one thing. The warps of an SM wait for each
//         other, and neither its issue slots nor the L2 are full.
// Needs:  what v12 does; 16-bit types, as v12 is as fast or faster in fp32; with `split` (x is two tensors), fp32
//         parameters.
//
// Shared memory of a block: its slab (SlabLayout, dz_slab.h), then the constants and sums (GroupSums, group_sums.h).

#include "dev/common/staggered_start.h"
#include "dev/groupnorm/dz/group_sums.h"
#include "dev/groupnorm/dz/persistent_slabs.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::groupnorm {
namespace {

using namespace resident_dz;

constexpr Needs kNeeds{
    .sums_bytes = GroupSums::bytes, .group_sums = true, .threads_per_sm = kPersistentThreadsPerSm, .split = true};

// Writes the thread's dx of a slab: dx_of_quad(x, dz) of each of its quads, a quad being four channels of a pixel.
// kRefills: as soon as it has read two steps, starts copies of the slab of `next` over them.
template <class T, bool kRefills, bool kSplit, class F>
__device__ __forceinline__ void write(const Problem& p, const Backward::Tensors& t, const DzPlan& plan,
                                      const DzOffset& tile, const DzOffset& next, ptx::CachePolicy policy,
                                      unsigned char* slab, const F& dx_of_quad) {
  using Layout = SlabLayout<T>;
  const int x_offset = tile.lane_idx * Layout::kQuadBytes;
  const int dz_offset = Layout::dz_offset(tile.lane_idx);
  using SlabCopies = Copies<T, kSplit>;
  const int copies_offset = SlabCopies::offset_of(tile.lane_idx);
  SlabCopies copies(p, plan, next);
  const int row = plan.pixel_rows * p.c;
  T* to = static_cast<T*>(t.dx) + (tile.image * p.h * p.w + tile.first_pixel) * p.c + tile.chunk * plan.chunk +
          tile.column * kQuad;
  int pixels = tile.end_pixel - tile.first_pixel;
  int steps_left = plan.first_steps;
#pragma unroll 1
  for (int group = 0; group < 2; ++group) {
#pragma unroll 1
    for (; steps_left > 0; steps_left -= kStepsAtOnce, slab += SlabCopies::kPairBytes) {
      Quad<T> x[kStepsAtOnce];
      float dz[kStepsAtOnce][kQuad];
#pragma unroll
      for (int s = 0; s < kStepsAtOnce; ++s) {
        x[s] = *reinterpret_cast<const Quad<T>*>(slab + x_offset + s * Layout::kStepBytes);
        load_quad(reinterpret_cast<const float*>(slab + dz_offset + s * Layout::kStepBytes), dz[s]);
      }
      if constexpr (kRefills) {
        __syncwarp();  // the neighbour that shares the 16-byte vectors has read its half
        copies.start(p, t, plan, tile, slab + copies_offset, policy);
      }
      Quad<T> dx[kStepsAtOnce];
#pragma unroll
      for (int s = 0; s < kStepsAtOnce; ++s) dx[s] = dx_of_quad(x[s], dz[s]);
#pragma unroll
      for (int s = 0; s < kStepsAtOnce; ++s) {
        if (pixels > s * plan.pixel_rows) *reinterpret_cast<Quad<T>*>(to + s * row) = dx[s];
      }
      to += kStepsAtOnce * row;
      pixels -= kStepsAtOnce * plan.pixel_rows;
    }
    if constexpr (kRefills) ptx::cp_async_commit();
    steps_left = plan.steps - plan.first_steps;
  }
}

template <class T, class Act, class P, bool kCluster, bool kSplit>
__global__ void __launch_bounds__(kPersistentThreadsPerSm)
    groupnorm_backward_v13_kernel(Problem p, Backward::Tensors t, DzPlan plan, SlabSchedule schedule,
                                  StaggeredStart start, FlaggedRow* rows) {
  using Layout = SlabLayout<T>;
  LADDER_DYN_SMEM(raw);
  const GroupSums smem(raw + Layout::bytes(plan), plan);
  const ptx::CachePolicy policy = ptx::evict_policy(plan.reads_once);
  DzOffset tile(p, plan);
  if constexpr (kCluster) {
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(smem.arrived, 1);
      ptx::mbarrier_fence_init();
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();  // this block has started
  }
  int slab_index = static_cast<int>(blockIdx.x) >> plan.log_cluster;  // chunks fastest, then images
  ptx::grid_dependency_wait();
  wait_for_start(start, slab_index);
  tile.image = slab_index / schedule.chunks;
  tile.chunk = slab_index - tile.image * schedule.chunks;

  // Load constants before x and dy: after them in the queues to memory they would arrive last. Thread i fetches those
  // of the chunk's channel i; beta is of the thread's own four channels.
  const int first_channel = min(static_cast<int>(threadIdx.x), plan.chunk - 1);
  ChannelConstants constants = fetch_channel<P>(p, t, plan, tile, first_channel);
  float beta[kQuad] = {};
  const auto load_beta = [&](int chunk) {
    if (t.beta) load_parameters(typed<P>(t.beta) + chunk * plan.chunk + tile.column * kQuad, beta);
  };
  load_beta(tile.chunk);

  unsigned char* const slab = raw + tile.warp_idx * plan.steps * Layout::kStepBytes;  // the warp's part of it
  load_slab<T, kSplit>(p, t, plan, tile, slab, policy);

#pragma unroll 1
  for (unsigned parity = 0;; parity ^= 1) {
    slab_index += schedule.clusters;
    const bool is_last = slab_index >= schedule.slabs;
    if (is_last) ptx::grid_dependency_launch();

#pragma unroll 1
    // Store the constants of the chunk's channels in shared memory.
    for (int i = threadIdx.x; i < plan.chunk; i += plan.threads()) {
      const int group = group_of(plan, i);
      if (i >= plan.threads()) constants = fetch_channel<P>(p, t, plan, tile, i);
      if (i == group * plan.channels_per_group) smem.mean[group] = constants.mean, smem.rstd[group] = constants.rstd;
      smem.scale[i] = constants.rstd * constants.gamma;
    }
    __syncthreads();
    float mean[kQuad];
    float scale[kQuad];
    for_channels(plan, tile, [&](int i, int group) { mean[i] = smem.mean[group]; });
    load_quad(smem.scale + tile.column * kQuad, scale);

    // Overwrite dy with dz and add up dz and dz * (x - mean) in each of the thread's four channels.
    float sums[2 * kQuad] = {};
    make_dz<T, Act>(plan, slab + tile.lane_idx * Layout::kQuadBytes, slab + Layout::dz_offset(tile.lane_idx), mean,
                    scale, beta, sums);

    // Load the constants of the next slab's channels, before its x and dy.
    DzOffset next = tile;
    if (!is_last) {
      advance(schedule, next);
      constants = fetch_channel<P>(p, t, plan, next, first_channel);
      load_beta(next.chunk);
    }
    sum_rows<true>({plan.quads, plan.chunk, plan.pixel_rows, plan.partial_sums, plan.partial_rows}, smem.partial,
                   tile.row, tile.column, sums);
    __syncthreads();

    // Send a group's sums to every block of the cluster, a channel's sums to its owner: rank channel % cluster.
    if constexpr (kCluster) {
      ptx::cluster_wait();  // all blocks have started, or have read the sums of their last slab
      if (threadIdx.x == 0) {
        const int expected = plan.groups + (rows ? GroupSums::owned(plan, tile.cta_rank) : 0);  // float2 per rank
        ptx::mbarrier_arrive_expect_tx(smem.arrived, (expected << plan.log_cluster) * sizeof(float2));
      }
    }
    send_groups<kCluster>(p, plan, tile, smem, rows);
    if constexpr (kCluster) {
      ptx::mbarrier_wait_cluster(smem.arrived, parity);
    } else {
      __syncthreads();
    }
    float offset[kQuad];  // dx = scale * dz + slope * (x - mean) + offset
    float slope[kQuad];
    add_ranks(plan, tile, smem, offset, slope);

    // Add up the ranks' sums of each channel that the block owns, and store them for the second kernel. Begin with the
    // last thread: the first ones had the most to do in send_groups().
    if (kCluster && rows) {
#pragma unroll 1
      for (int i = plan.threads() - 1 - static_cast<int>(threadIdx.x); i < GroupSums::owned(plan, tile.cta_rank);
           i += plan.threads()) {
        const int first = i << plan.log_cluster;
        const float2 sum = sum_column(smem.channels + first, plan.cluster(), 1, 0);
        store_channel_terms(p, plan, tile, smem, rows, first + tile.cta_rank, sum);
      }
    }

    // Write dx. Unless this slab is the last, copy the next slab over it step by step.
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
      write<T, false, kSplit>(p, t, plan, tile, next, policy, slab, dx_of_quad);
      return;
    }
    write<T, true, kSplit>(p, t, plan, tile, next, policy, slab, dx_of_quad);
    if constexpr (kCluster) ptx::cluster_arrive_relaxed();  // this thread has read the block's sums
    __syncthreads();                                        // the constants may be overwritten
    tile.image = next.image, tile.chunk = next.chunk;
  }
}

const char* supports(const Problem& p) {
  const char* const why = p.split != 0 ? fp32_parameters_only(p) : nullptr;
  return why ? why : resident_dz::supports(p, kNeeds);
}

template <class T, class Act, class P, bool kSplit>
BoundLaunch bind(const Problem& p, const Backward::Tensors& t, const DzPlan& plan, FlaggedRow* rows) {
  const auto kernel = plan.cluster() == 1 ? groupnorm_backward_v13_kernel<T, Act, P, false, kSplit>  //
                                          : groupnorm_backward_v13_kernel<T, Act, P, true, kSplit>;
  LaunchConfig config{.grid = {static_cast<unsigned>(p.c / plan.chunk * plan.cluster()), static_cast<unsigned>(p.n)},
                      .block = static_cast<unsigned>(plan.threads()),
                      .dynamic_smem = static_cast<std::size_t>(smem_bytes(p, plan, kNeeds)),
                      .cluster = static_cast<unsigned>(plan.cluster()),
                      .overlaps_previous = true};
  const StaggeredStart start = staggered_start(kernel, config, 2.0 * p.elements() * sizeof(T));
  const SlabSchedule schedule = schedule_of(p, plan, resident_clusters(kernel, config));
  config.grid = static_cast<unsigned>(schedule.clusters * plan.cluster());
  return with_parameters(bind_launch(kernel, config, p, t, plan, schedule, start, rows), p, rows, t);
}

std::vector<KernelPlan<Backward>> plans(const Problem& p) {
  const DzPlan plan = plan_of_turns(p, kNeeds);
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

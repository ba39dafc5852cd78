// Idea:   clusters of up to 16 blocks exchange sums of groups instead of sums of channels; a second kernel adds up
//         dgamma and dbeta while this one is still writing dx.
// Parent: v09 (v11 is retired: README).
// Why:    a row is a pixel's channels of a chunk, and the L2 looks up a line for every row, best one of 128 bytes. v11
//         has rows of 32 to 64 bytes, so its lookups are close to their peak; 16 blocks hold a chunk twice as wide. dx
//         needs sums of groups only, which go to all blocks of the cluster. A channel's sums go to one block, which
//         stores them in global memory, each beside a ready flag; the second kernel takes each as soon as it is there.
//         Shared memory leaves an SM some 16 warps, so the exchange is kept short: the first warps alone add up and
//         send, and the lanes of each warp split the received sums. mean, rstd, gamma and beta are loaded before x and
//         dy, or they arrive after them. Limiter: memory in fp32; in 16-bit types issue slots.
// Needs:  what v09 does, but clusters of 16 where the card has them, and a private workspace of 16 bytes a channel of
//         every image.

#include "dev/common/staggered_start.h"
#include "dev/groupnorm/dz/group_sums.h"
#include "dev/ptx/cache_policy.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::groupnorm {
namespace {

using namespace resident_dz;

constexpr Needs kNeeds{.sums_bytes = GroupSums::bytes, .group_sums = true};

template <class T, class Act, class P, bool kCluster>
__global__ void __launch_bounds__(kMaxThreads, kThreadsPerSm / kMaxThreads)
    groupnorm_backward_v12_kernel(Problem p, Backward::Tensors t, DzPlan plan, StaggeredStart start, FlaggedRow* rows) {
  using Layout = SlabLayout<T>;
  LADDER_DYN_SMEM(raw);
  const GroupSums smem(raw + Layout::bytes(plan), plan);
  const ptx::CachePolicy policy = ptx::evict_policy(plan.reads_once);
  const DzOffset tile(p, plan);
  if constexpr (kCluster) {
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(smem.arrived, 1);
      ptx::mbarrier_fence_init();
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();  // this block has started
  }
  ptx::grid_dependency_wait();
  wait_for_start(start, cluster_index(plan.log_cluster));

  // Load constants before x and dy: after them in the queues to memory they would arrive last. Thread i fetches those
  // of the chunk's channel i; beta is of the thread's own four channels.
  ChannelConstants constants = fetch_channel<P>(p, t, plan, tile, min(static_cast<int>(threadIdx.x), plan.chunk - 1));
  float beta[kQuad] = {};
  if (t.beta) load_parameters(typed<P>(t.beta) + tile.chunk * plan.chunk + tile.column * kQuad, beta);

  // Start all copies of x and dy to shared memory, in two cp.async groups. Two threads share a 16-byte vector of 16-bit
  // elements: the even one copies it at even steps, the odd one at odd steps. Past the block's last pixel x repeats
  // that pixel and dy is zero, so that the sums do not change.
  unsigned char* const slab = raw + tile.warp_idx * plan.steps * Layout::kStepBytes;  // the warp's part of it
  {
    const int sharer = tile.lane_idx % Layout::kSharers;
    const int column_offset = tile.image_offset + (tile.column - sharer) * kQuad;
    unsigned char* to = slab + sharer * Layout::kStepBytes + tile.lane_idx / Layout::kSharers * 16;
    int pixel = tile.first_pixel + sharer * plan.pixel_rows;
    int step = sharer;
#pragma unroll 1
    for (int group = 0; group < 2; ++group) {
      const int until = group == 0 ? plan.first_steps : plan.steps;
#pragma unroll 4
      for (; step < until; step += Layout::kSharers) {
        const int from = column_offset + min(pixel, tile.end_pixel - 1) * p.c;
        ptx::cp_async_16(to, static_cast<const T*>(t.x) + from, true, policy);
        ptx::cp_async_16(to + Layout::kDz, static_cast<const T*>(t.dy) + from, pixel < tile.end_pixel, policy);
        pixel += Layout::kSharers * plan.pixel_rows;
        to += Layout::kSharers * Layout::kStepBytes;
      }
      ptx::cp_async_commit();
    }
  }
  ptx::grid_dependency_launch();

  // Store the constants of the chunk's channels in shared memory.
#pragma unroll 1
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

  // Overwrite dy with dz and add up dz and dz * (x - mean) in each of the thread's four channels. Then add up these
  // sums over the block's rows, into smem.partial.
  unsigned char* const local_x = slab + tile.lane_idx * Layout::kQuadBytes;  // the thread's x
  unsigned char* const local_dz = slab + Layout::dz_offset(tile.lane_idx);
  float sums[2 * kQuad] = {};
  make_dz<T, Act>(plan, local_x, local_dz, mean, scale, beta, sums);
  sum_rows<true>({plan.quads, plan.chunk, plan.pixel_rows, plan.partial_sums, plan.partial_rows}, smem.partial,
                 tile.row, tile.column, sums);
  __syncthreads();

  // Send a group's sums to every block of the cluster, a channel's sums to its owner: rank channel % cluster.
  if constexpr (kCluster) {
    ptx::cluster_wait();  // all blocks have started
    if (threadIdx.x == 0) {
      const int expected = plan.groups + (rows ? GroupSums::owned(plan, tile.cta_rank) : 0);  // float2 per rank
      ptx::mbarrier_arrive_expect_tx(smem.arrived, (expected << plan.log_cluster) * sizeof(float2));
    }
  }
  send_groups<kCluster>(p, plan, tile, smem, rows);
  if constexpr (kCluster) {
    ptx::mbarrier_wait_cluster(smem.arrived, 0);
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

  // Write dx, two pixels at a time.
  int to = tile.image_offset + tile.first_pixel * p.c + tile.column * kQuad;
  int step_offset = 0;
  const auto write = [&](int s) {
    float x[kQuad];
    float dz[kQuad];
    float dx[kQuad];
    unpack_quad<T>(*reinterpret_cast<const Quad<T>*>(local_x + step_offset + s * Layout::kStepBytes), x);
    load_quad(reinterpret_cast<const float*>(local_dz + step_offset + s * Layout::kStepBytes), dz);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      dx[i] = dx_of({.scale = scale[i]}, {.offset = offset[i], .slope = slope[i]}, x[i] - mean[i], dz[i]);
    }
    *reinterpret_cast<Quad<T>*>(static_cast<T*>(t.dx) + to + s * plan.pixel_rows * p.c) = pack_quad<T>(dx);
  };
  int pixel = tile.first_pixel;
#pragma unroll 1
  for (; pixel + plan.pixel_rows < tile.end_pixel; pixel += 2 * plan.pixel_rows) {
    write(0);
    write(1);
    to += 2 * plan.pixel_rows * p.c;
    step_offset += 2 * Layout::kStepBytes;
  }
  if (pixel < tile.end_pixel) write(0);
}

const char* supports(const Problem& p) { return resident_dz::supports(p, kNeeds); }

std::vector<KernelPlan<Backward>> plans(const Problem& p) {
  const DzPlan plan = plan_of_turns(p, kNeeds);
  KernelPlan<Backward> only{.name = plan.cluster() == 1 ? "single blocks" : "clusters",
                            .workspace_bytes = sizeof(FlaggedRow) * p.n * p.c};
  dispatch_all_types(p, [&](auto element, auto act, auto parameter) {
    using T = decltype(element);
    using Act = decltype(act);
    using P = decltype(parameter);
    only.bind = [p, plan](const Backward::Tensors& t, void* workspace) {
      auto* const rows = p.affine ? static_cast<FlaggedRow*>(workspace) : nullptr;               // [n][c]
      const auto kernel = plan.cluster() == 1 ? groupnorm_backward_v12_kernel<T, Act, P, false>  //
                                              : groupnorm_backward_v12_kernel<T, Act, P, true>;
      const LaunchConfig config{
          .grid = {static_cast<unsigned>(p.c / plan.chunk * plan.cluster()), static_cast<unsigned>(p.n)},
          .block = static_cast<unsigned>(plan.threads()),
          .dynamic_smem = static_cast<std::size_t>(smem_bytes(p, plan, kNeeds)),
          .cluster = static_cast<unsigned>(plan.cluster()),
          .overlaps_previous = true};
      const StaggeredStart start = staggered_start(kernel, config, 2.0 * p.elements() * sizeof(T));
      return with_parameters(bind_launch(kernel, config, p, t, plan, start, rows), p, rows, t);
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
                .supports = ladder::groupnorm::supports,
                .private_workspace = true,
                .min_arch = 90,
                .needs = "whole vectors; slabs that fit in the shared memory of a cluster"})

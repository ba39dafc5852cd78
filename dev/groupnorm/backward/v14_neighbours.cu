// Idea:   fuse the operation that follows: up to two images are added to dx before it is rounded, or dx is summed over
//         the image, for the gradient of a row that was added to all pixels.
// Parent: v13.
// Why:    a separate addition or sum reads dx again: 44 launches of a U-Net's step. The sum costs no pass: over a channel
//             sum of dx = scale P + pixels offset + slope X,   P = sum of dz,   X = sum of x - mean
//         and P is there already; X is one more addition an element, and one float a channel that blocks send to the
//         channel's owner. Addends are loaded into registers a step ahead, the first ones while the cluster exchanges
//         its sums. It starts while the previous kernel ends, as small images take as long as a launch. Limiter: as
//         v13; addends read one or two thirds more bytes.
// Needs:  what v13 does; fp32 parameters, and gamma and beta for the sum of dx.

#include "dev/common/staggered_start.h"
#include "dev/groupnorm/dz/group_sums.h"
#include "dev/groupnorm/dz/persistent_slabs.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::groupnorm {
namespace {

using namespace resident_dz;

// Shared memory after the slab: v13's sums, then sums of x - mean.
struct ImageSums {
  GroupSums groups;
  float* partial;   // [partial_rows][chunk]
  float* channels;  // [owned][cluster], each rank's sums of the channels that the block owns

  static __host__ __device__ int begin(const DzPlan& plan) { return (GroupSums::bytes(plan) + 15) / 16 * 16; }
  static int bytes(const DzPlan& plan) {
    return begin(plan) + 4 * (plan.chunk * plan.partial_rows + (GroupSums::owned(plan, 0) << plan.log_cluster));
  }
  __device__ __forceinline__ ImageSums(unsigned char* smem, const DzPlan& plan) : groups(smem, plan) {
    partial = reinterpret_cast<float*>(smem + begin(plan));
    channels = partial + plan.partial_rows * plan.chunk;
  }
};

template <bool kEmbedding>
constexpr Needs kNeeds{.sums_bytes = kEmbedding ? ImageSums::bytes : GroupSums::bytes,
                       .group_sums = true,
                       .threads_per_sm = kPersistentThreadsPerSm,
                       .fuses_neighbours = true};

// Quads of the addends at a thread's next kStepsAtOnce steps.
template <class T>
struct Addends {
  Quad<T> first[kStepsAtOnce];
  Quad<T> second[kStepsAtOnce];

  // Loads the quads from element `offset` of [n, h, w, c] on; `pixels`: pixels from there to the block's end.
  __device__ __forceinline__ void load(const Problem& p, const Backward::Tensors& t, const DzPlan& plan, int offset,
                                       int pixels) {
#pragma unroll
    for (int s = 0; s < kStepsAtOnce; ++s) {
      if (pixels <= s * plan.pixel_rows) continue;
      const int from = offset + s * plan.pixel_rows * p.c;
      first[s] = *reinterpret_cast<const Quad<T>*>(static_cast<const T*>(t.addend) + from);
      if (t.addend2) second[s] = *reinterpret_cast<const Quad<T>*>(static_cast<const T*>(t.addend2) + from);
    }
  }
  __device__ __forceinline__ void add_to(float (&dx)[kQuad], const Backward::Tensors& t, int s) const {
    float addend[kQuad];
    unpack_quad<T>(first[s], addend);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) dx[i] += addend[i];
    if (!t.addend2) return;
    unpack_quad<T>(second[s], addend);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) dx[i] += addend[i];
  }
};

// Writes a thread's dx of a slab: dx_of_quad(x, dz, dx) plus the addends. kRefills: copies the next slab over read quads.
template <class T, bool kRefills, bool kEmbedding, class F>
__device__ __forceinline__ void write(const Problem& p, const Backward::Tensors& t, const DzPlan& plan,
                                      const DzOffset& tile, const DzOffset& next, ptx::CachePolicy policy,
                                      unsigned char* slab, Addends<T>& addends, const F& dx_of_quad) {
  using Layout = SlabLayout<T>;
  const int x_offset = tile.lane_idx * Layout::kQuadBytes;
  const int dz_offset = Layout::dz_offset(tile.lane_idx);
  Copies<T> copies(p, plan, next);
  const int row = plan.pixel_rows * p.c;
  int offset = first_element(p, plan, tile);
  int pixels = tile.end_pixel - tile.first_pixel;
  int steps_left = plan.first_steps;
#pragma unroll 1
  for (int group = 0; group < 2; ++group) {
#pragma unroll 1
    for (; steps_left > 0; steps_left -= kStepsAtOnce, slab += Copies<T>::kPairBytes) {
      Quad<T> x[kStepsAtOnce];
      float dz[kStepsAtOnce][kQuad];
#pragma unroll
      for (int s = 0; s < kStepsAtOnce; ++s) {
        x[s] = *reinterpret_cast<const Quad<T>*>(slab + x_offset + s * Layout::kStepBytes);
        load_quad(reinterpret_cast<const float*>(slab + dz_offset + s * Layout::kStepBytes), dz[s]);
      }
      if constexpr (kRefills) {
        __syncwarp();  // the thread that shares the vectors has read them
        copies.start(p, t, plan, tile, slab + Copies<T>::offset_of(tile.lane_idx), policy);
      }
      Quad<T> packed[kStepsAtOnce];
#pragma unroll
      for (int s = 0; s < kStepsAtOnce; ++s) {
        float dx[kQuad];
        dx_of_quad(x[s], dz[s], dx);
        if constexpr (!kEmbedding) addends.add_to(dx, t, s);
        packed[s] = pack_quad<T>(dx);
      }
      if constexpr (!kEmbedding) {
        addends.load(p, t, plan, offset + kStepsAtOnce * row, pixels - kStepsAtOnce * plan.pixel_rows);
      }
#pragma unroll
      for (int s = 0; s < kStepsAtOnce; ++s) {
        if (pixels > s * plan.pixel_rows)
          *reinterpret_cast<Quad<T>*>(static_cast<T*>(t.dx) + offset + s * row) = packed[s];
      }
      offset += kStepsAtOnce * row;
      pixels -= kStepsAtOnce * plan.pixel_rows;
    }
    if constexpr (kRefills) ptx::cp_async_commit();
    steps_left = plan.steps - plan.first_steps;
  }
}

// Sends the block's sums of x - mean to the channels' owners, by its last threads: the first ones have the most to do.
__device__ __forceinline__ void send_centred(const DzPlan& plan, const DzOffset& tile, const ImageSums& smem) {
#pragma unroll 1
  for (int i = plan.threads() - 1 - static_cast<int>(threadIdx.x); i < plan.chunk; i += plan.threads()) {
    const int to = i & (plan.cluster() - 1);
    ptx::st_async(ptx::mapa(smem.channels + (i & -plan.cluster()) + tile.cta_rank, to),
                  sum_column(smem.partial, plan.partial_rows, plan.chunk, i), ptx::mapa(smem.groups.arrived, to));
  }
}

// Finishes the channels that the block owns: rows for dgamma and dbeta, and de. The last warp has the first channels.
template <bool kCluster, bool kEmbedding>
__device__ __forceinline__ void finish_channels(const Problem& p, const Backward::Tensors& t, const DzPlan& plan,
                                                const DzOffset& tile, const ImageSums& smem,
                                                const Correction& lane_correction, FlaggedRow* rows) {
  const GroupSums& sums = smem.groups;
  const int count = kCluster ? GroupSums::owned(plan, tile.cta_rank) : plan.chunk;
#pragma unroll 1
  for (int first = plan.threads() - 32 - tile.warp_idx * 32; first < count; first += plan.threads()) {
    const int i = first + tile.lane_idx;
    const int channel = min(kCluster ? (i << plan.log_cluster) + tile.cta_rank : i, plan.chunk - 1);
    [[maybe_unused]] Correction correction;
    if constexpr (kEmbedding) correction = correction_of_group(plan, lane_correction, group_of(plan, channel));
    if (i >= count) continue;
    float2 sum;
    if constexpr (kCluster) {
      sum = sum_column(sums.channels + (i << plan.log_cluster), plan.cluster(), 1, 0);
      store_channel_terms(p, plan, tile, sums, rows, channel, sum);
    } else {
      sum = sum_column(sums.partial, plan.partial_rows, plan.chunk, channel);  // send_groups() has stored its row
    }
    if constexpr (!kEmbedding) continue;
    const float centred = kCluster ? sum_column(smem.channels + (i << plan.log_cluster), plan.cluster(), 1, 0)
                                   : sum_column(smem.partial, plan.partial_rows, plan.chunk, channel);
    const float group_term = fmaf(correction.slope, centred, static_cast<float>(p.h * p.w) * correction.offset);
    t.de[tile.image * p.embedding + p.first + tile.chunk * plan.chunk + channel] =
        fmaf(sums.scale[channel], sum.x, group_term);
  }
}

template <class T, class Act, bool kCluster, bool kEmbedding>
__global__ void __launch_bounds__(kPersistentThreadsPerSm)
    groupnorm_backward_v14_kernel(Problem p, Backward::Tensors t, DzPlan plan, SlabSchedule schedule,
                                  StaggeredStart start, FlaggedRow* rows) {
  using Layout = SlabLayout<T>;
  LADDER_DYN_SMEM(raw);
  const ImageSums image(raw + Layout::bytes(plan), plan);
  const GroupSums& smem = image.groups;
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
  ptx::grid_dependency_wait();
  int slab_index = static_cast<int>(blockIdx.x) >> plan.log_cluster;
  wait_for_start(start, slab_index);
  tile.image = slab_index / schedule.chunks;
  tile.chunk = slab_index - tile.image * schedule.chunks;

  // Load the channels' constants first: behind x and dy in the queues to memory they would arrive last.
  const int first_channel = min(static_cast<int>(threadIdx.x), plan.chunk - 1);
  ChannelConstants constants = fetch_channel<float>(p, t, plan, tile, first_channel);
  float beta[kQuad] = {};
  const auto load_beta = [&](int chunk) {
    if (t.beta) load_quad(t.beta + chunk * plan.chunk + tile.column * kQuad, beta);
  };
  load_beta(tile.chunk);
  unsigned char* const slab = raw + tile.warp_idx * plan.steps * Layout::kStepBytes;  // of the warp
  load_slab<T>(p, t, plan, tile, slab, policy);

#pragma unroll 1
  for (unsigned parity = 0;; parity ^= 1) {
    slab_index += schedule.clusters;
    const bool is_last = slab_index >= schedule.slabs;
    if (is_last) ptx::grid_dependency_launch();

      // Store the constants of the chunk's channels in shared memory, once a block.
#pragma unroll 1
    for (int i = threadIdx.x; i < plan.chunk; i += plan.threads()) {
      const int group = group_of(plan, i);
      if (i >= plan.threads()) constants = fetch_channel<float>(p, t, plan, tile, i);
      if (i == group * plan.channels_per_group) smem.mean[group] = constants.mean, smem.rstd[group] = constants.rstd;
      smem.scale[i] = constants.rstd * constants.gamma;
    }
    __syncthreads();
    float mean[kQuad];
    float scale[kQuad];
    for_channels(plan, tile, [&](int i, int group) { mean[i] = smem.mean[group]; });
    load_quad(smem.scale + tile.column * kQuad, scale);

    // Overwrite dy with dz and add up two or three sums of each of the thread's channels.
    float sums[2 * kQuad] = {};
    float centred_sums[kQuad] = {};
    int pixels = tile.end_pixel - tile.first_pixel;
    make_dz<T, Act>(plan, slab + tile.lane_idx * Layout::kQuadBytes, slab + Layout::dz_offset(tile.lane_idx), mean,
                    scale, beta, sums, [&](const float(&centred)[kQuad]) {
                      if constexpr (!kEmbedding) return;
                      if (pixels > 0) {  // past the last pixel x repeats that pixel
#pragma unroll
                        for (int i = 0; i < kQuad; ++i) centred_sums[i] += centred[i];
                      }
                      pixels -= plan.pixel_rows;
                    });

    // Load the first addends, which are used after the exchange of sums, and the constants of the next slab's channels.
    Addends<T> addends;
    if constexpr (!kEmbedding) {
      addends.load(p, t, plan, first_element(p, plan, tile), tile.end_pixel - tile.first_pixel);
    }
    DzOffset next = tile;
    if (!is_last) {
      advance(schedule, next);
      constants = fetch_channel<float>(p, t, plan, next, first_channel);
      load_beta(next.chunk);
    }
    const QuadRows shape{plan.quads, plan.chunk, plan.pixel_rows, plan.partial_sums, plan.partial_rows};
    sum_rows<true>(shape, smem.partial, tile.row, tile.column, sums);
    if constexpr (kEmbedding) sum_rows<true>(shape, image.partial, tile.row, tile.column, centred_sums);
    __syncthreads();

    // Send sums of groups to every block of the cluster, sums of a channel to its owner.
    if constexpr (kCluster) {
      ptx::cluster_wait();  // all blocks have started, or have read their previous sums
      if (threadIdx.x == 0) {
        const int owned = GroupSums::owned(plan, tile.cta_rank);
        const int pairs = plan.groups + (rows ? owned : 0);
        ptx::mbarrier_arrive_expect_tx(smem.arrived,
                                       (pairs << plan.log_cluster) * sizeof(float2) +
                                           (kEmbedding ? (owned << plan.log_cluster) * sizeof(float) : 0));
      }
    }
    send_groups<kCluster>(p, plan, tile, smem, rows);
    if constexpr (kCluster && kEmbedding) send_centred(plan, tile, image);
    if constexpr (kCluster) {
      ptx::mbarrier_wait_cluster(smem.arrived, parity);
    } else {
      __syncthreads();
    }
    const Correction lane_correction = correction_of_lane(plan, tile, smem);
    float offset[kQuad];
    float slope[kQuad];
    shuffle_corrections(plan, tile, lane_correction, offset, slope);
    if ((kCluster || kEmbedding) && rows) {
      finish_channels<kCluster, kEmbedding>(p, t, plan, tile, image, lane_correction, rows);
    }

    // Write dx, and copy the next slab's x and dy over the quads that have been read.
    const auto dx_of_quad = [&](const Quad<T>& x_bits, const float(&dz)[kQuad], float(&dx)[kQuad]) {
      float x[kQuad];
      unpack_quad<T>(x_bits, x);
#pragma unroll
      for (int i = 0; i < kQuad; ++i) {
        dx[i] = dx_of({.scale = scale[i]}, {.offset = offset[i], .slope = slope[i]}, x[i] - mean[i], dz[i]);
      }
    };
    if (is_last) {
      write<T, false, kEmbedding>(p, t, plan, tile, next, policy, slab, addends, dx_of_quad);
      return;
    }
    write<T, true, kEmbedding>(p, t, plan, tile, next, policy, slab, addends, dx_of_quad);
    if constexpr (kCluster) ptx::cluster_arrive_relaxed();  // this block has read its sums
    __syncthreads();
    tile.image = next.image, tile.chunk = next.chunk;
  }
}

const char* supports(const Problem& p) {
  if (!plain_dx_only(p)) return "nothing is added to dx or made of it: v13 is the same";
  if (const char* const why = fp32_parameters_only(p)) return why;
  if (p.embedding == 0) return resident_dz::supports(p, kNeeds<false>);
  return p.affine ? resident_dz::supports(p, kNeeds<true>) : "the sum of dx goes with those for gamma and beta";
}

template <class T, class Act, bool kEmbedding>
BoundLaunch bind(const Problem& p, const Backward::Tensors& t, const DzPlan& plan, FlaggedRow* rows) {
  const auto kernel = plan.cluster() == 1 ? groupnorm_backward_v14_kernel<T, Act, false, kEmbedding>  //
                                          : groupnorm_backward_v14_kernel<T, Act, true, kEmbedding>;
  LaunchConfig config{.grid = {static_cast<unsigned>(p.c / plan.chunk * plan.cluster()), static_cast<unsigned>(p.n)},
                      .block = static_cast<unsigned>(plan.threads()),
                      .dynamic_smem = static_cast<std::size_t>(smem_bytes(p, plan, kNeeds<kEmbedding>)),
                      .cluster = static_cast<unsigned>(plan.cluster())};
  const StaggeredStart start = staggered_start(kernel, config, 2.0 * p.elements() * sizeof(T));
  const SlabSchedule schedule = schedule_of(p, plan, resident_clusters(kernel, config));
  config.grid = static_cast<unsigned>(schedule.clusters * plan.cluster());
  config.overlaps_previous = true;  // after the driver was asked about it, alone on the card
  return with_parameters(bind_launch(kernel, config, p, t, plan, schedule, start, rows), p, rows, t);
}

template <bool kEmbedding>
std::vector<KernelPlan<Backward>> plans_of(const Problem& p) {
  const DzPlan plan = plan_of_turns(p, kNeeds<kEmbedding>);
  KernelPlan<Backward> only{.name = plan.cluster() == 1 ? "single blocks" : "clusters",
                            .workspace_bytes = sizeof(FlaggedRow) * p.n * p.c};
  const auto with_type = [&](auto element) {
    dispatch(p.activation, [&](auto act) {
      only.bind = [p, plan](const Backward::Tensors& t, void* workspace) {
        auto* const rows = p.affine ? static_cast<FlaggedRow*>(workspace) : nullptr;  // [n][c]
        return bind<decltype(element), decltype(act), kEmbedding>(p, t, plan, rows);
      };
    });
  };
  p.dtype == Dtype::bf16 ? with_type(__nv_bfloat16()) : with_type(__half());
  return {only};
}

std::vector<KernelPlan<Backward>> plans(const Problem& p) {
  return p.embedding == 0 ? plans_of<false>(p) : plans_of<true>(p);
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
                .needs = "addend or embedding; whole vectors; slabs that fit in the shared memory of a cluster"})

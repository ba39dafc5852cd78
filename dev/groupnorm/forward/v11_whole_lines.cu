// Idea:   clusters of up to 16 blocks, so that rows are whole lines of the L2 and blocks still small; and loads of lines that
//         the L2 evicts first.
// Parent: v10.
// Why:    v10's rows of 64 and 96 bytes, which eight blocks have room for, share lines of 128 with other chunks. Each line is
//         looked up twice, and fetched twice if it was evicted in between. Where x and y fit the L2 together, evicting x's
//         lines first keeps the rest of its content. Limiter: as v10's.
// Needs:  what v10 does; clusters of 16 where the card has them.

#include <cfloat>
#include <cmath>
#include <limits>

#include "core/occupancy.h"
#include "dev/common/staggered_start.h"
#include "dev/groupnorm/parameters.h"
#include "dev/groupnorm/parts_of_x.h"
#include "dev/groupnorm/tensor_core/cluster_exchange.h"
#include "dev/groupnorm/tensor_core/normalised_stores.h"
#include "dev/groupnorm/tensor_core/tensor_core_sums.h"
#include "dev/ptx/cache_policy.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/maximum.h"

namespace ladder::groupnorm {
namespace {

using namespace tensor_core;

template <class T, class Act, class P>
__global__ void __launch_bounds__(kMaxThreads, kBlocksPerSm)
    groupnorm_forward_v11_kernel(Problem p, Forward::Tensors t, TensorCorePlan plan, StaggeredStart start,
                                 bool reads_once) {
  constexpr int kVec = kVector<T>;
  LADDER_DYN_SMEM(smem);
  auto* const slab = reinterpret_cast<uint4*>(smem);
  const TensorCoreSums sums(smem, plan);

  // A block is rank blockIdx.x % cluster of chunk blockIdx.x / cluster, of image blockIdx.y: the chunks that share a pixel's
  // lines run at the same time. A thread is column threadIdx.x and pixel threadIdx.y: nothing to divide.
  const int column = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(threadIdx.y);
  const int thread_idx = row * plan.row_vectors + column;
  const int cta_rank = static_cast<int>(blockIdx.x) & (cluster_of(plan) - 1);
  const int chunk = static_cast<int>(blockIdx.x) >> plan.log_cluster;
  const int chunk_channel = chunk * plan.channels;
  const int image = static_cast<int>(blockIdx.y);
  if (plan.log_cluster > 0) {
    if (thread_idx == 0) {
      ptx::mbarrier_init(&sums.arrived[0], 1);
      ptx::mbarrier_init(&sums.arrived[1], 1);
      ptx::mbarrier_fence_init();
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();
  }
  const ptx::CachePolicy policy = ptx::evict_policy(reads_once);
  ptx::grid_dependency_wait();
  wait_for_start(start, cluster_index(plan.log_cluster));

  // Load the slab. Neighbouring threads load neighbouring vectors; a thread's are of the same channels, `step` elements apart.
  const int first_pixel = cta_rank * plan.pixels_per_block;
  const int pixels = max(min(plan.pixels_per_block, p.h * p.w - first_pixel), 0);
  const int image_pixel = image * p.h * p.w;
  const int pixel = image_pixel + first_pixel + row;
  const auto x = column_of_x<T>(p, t, chunk_channel + column * kVec);
  const int step = static_cast<int>(blockDim.y) * x.pitch;
  uint4* const local_vectors = slab + swizzled(plan, row, column);
  const uint4* const end = slab + pixels * plan.row_vectors;
  const T* from = x.pixel_ptr(pixel);
  uint4* to = local_vectors;
  constexpr int kBatch = 8;
#pragma unroll 1
  for (; to + (kBatch - 1) * plan.threads < end; to += kBatch * plan.threads, from += kBatch * step) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) ptx::cp_async_16(to + i * plan.threads, from + i * step, true, policy);
  }
#pragma unroll 1
  for (; to < end; to += plan.threads, from += step) ptx::cp_async_16(to, from, true, policy);
  ptx::cp_async_commit();
#pragma unroll 1
  for (; to < slab + vectors_of(plan); to += plan.threads) *to = {0, 0, 0, 0};

  // Meanwhile a thread for each channel reads its parameters.
  const bool has_channel = thread_idx < plan.channels;
  int group = 0;
  float gamma = 1;
  float beta = 0;
  if (has_channel) {
    group = divided(thread_idx, plan.reciprocal_width);
    if (t.gamma) gamma = parameter<P>(t.gamma, chunk_channel + thread_idx);
    if (t.beta) beta = parameter<P>(t.beta, chunk_channel + thread_idx);
  }
  ptx::grid_dependency_launch();
  ptx::cp_async_wait<0>();
  __syncthreads();

  // Sum the block's channels, and exchange the sums of their groups with the cluster.
  sum_channels<T, false>(plan, slab, pixels, thread_idx, sums);
  __syncthreads();
  if (plan.log_cluster > 0) {
    ptx::cluster_wait();  // all blocks have started
    exchange_groups(plan, cta_rank, thread_idx, sums, 0);
  }

  // Scale and shift of the thread's channel. Returns whether the mean is too far from the pivot for sums about that: all
  // blocks of a cluster find the same.
  const auto finish = [&](int round, float pivot) {
    const float2 sum = sum_ranks<kMaxBigClusterBlocks>(plan, sums, round, group);
    const float mean = sum.x * plan.inverse_m;  // less the pivot
    const float variance = fmaf(-mean, mean, sum.y * plan.inverse_m);
    const float rstd = rsqrtf(ptx::maximum(variance, 0.0f) + p.eps);
    const float scale = gamma * rstd;
    sums.scale[thread_idx] = Output<T, Act>::kFactor * scale;
    sums.shift[thread_idx] = Output<T, Act>::kFactor * fmaf(-mean, scale, beta);
    if (cta_rank == 0 && group * plan.channels_per_group == thread_idx) {
      const int index = image * p.g + chunk * plan.groups + group;
      t.mean[index] = pivot + mean;
      t.rstd[index] = rstd;
    }
    // NOTE: written so that NaN counts as far.
    const bool near = mean * mean <= plan.max_mean_ratio * (variance + p.eps) && sum.y <= FLT_MAX;
    return !near;
  };
  const bool far = has_channel && finish(0, 0.0f);

  // Store.
  T* const y = static_cast<T*>(t.y) + pixel * p.c + chunk_channel + column * kVec;
  const int y_step = static_cast<int>(blockDim.y) * p.c;
  if (!__syncthreads_or(far)) {
    store_normalised<T, Act, false>(plan, local_vectors, end, y, y_step, column, sums);
    return;
  }

  // A mean is too far from zero: sum again, about the first element of each group.
  float pivot = 0;
  if (has_channel) {
    pivot = to_float(*column_of_x<T>(p, t, chunk_channel + group * plan.channels_per_group).pixel_ptr(image_pixel));
    sums.pivot[thread_idx] = pivot;
  }
  __syncthreads();
  sum_channels<T, true>(plan, slab, pixels, thread_idx, sums);
  __syncthreads();
  if (plan.log_cluster > 0) exchange_groups(plan, cta_rank, thread_idx, sums, 1);
  if (has_channel) finish(1, pivot);
  __syncthreads();
  store_normalised<T, Act, true>(plan, local_vectors, end, y, y_step, column, sums);
}

// An estimate of a plan's time, to compare plans; infinity: it does not fit. The longer of the traffic's time and of the time of
// all waves of blocks, and the last block's. Fitted to a sweep of all plans for the shapes of `perf` on an H200.
double plan_ns(const Problem& p, const TensorCorePlan& plan) {
  constexpr double kBytesPerNs = 32;  // of an SM from memory when all SMs load
  constexpr double kLineBytes = 128;  // that memory and caches move at best
  constexpr double kLine = 2;         // what the rest of a row's line costs, of what it would if it were needed
  constexpr double kBlockNs = 3800;   // of a block, whatever it does
  constexpr double kWarpNs = 160;     // more for each of its warps
  constexpr double kClusterNs = 550;  // more for a cluster than for one of half its blocks
  constexpr double kElementNs = 22;   // of a thread, on an SM full of threads
  constexpr double kAlone = 0.7;      // of that, on an empty one
  constexpr double kLast = 0.83;      // of a block, that nothing hides
  constexpr int kThreadsPerSm = kMaxThreads * kBlocksPerSm;

  const Turns turns = turns_of(p.n * (p.c / plan.channels), cluster_of(plan), plan.threads,
                               static_cast<int>(slab_bytes(plan)) + sums_bytes(plan), kThreadsPerSm);
  if (turns.most_blocks == 0) return std::numeric_limits<double>::infinity();
  const double bytes = static_cast<double>(slab_bytes(plan));
  const double lines = 1 + kLine * std::max(0.0, kLineBytes / (16.0 * plan.row_vectors) - 1);
  const double traffic = 2 * turns.blocks * bytes * lines / kBytesPerNs;
  const double filled = std::min<double>(turns.most_blocks, std::ceil(turns.blocks)) * plan.threads / kThreadsPerSm;
  const double elements = bytes / static_cast<double>(size_of(p.dtype)) / plan.threads;
  const double block = kBlockNs + plan.threads / 32 * kWarpNs + plan.log_cluster * kClusterNs +
                       elements * kElementNs * (kAlone + (1 - kAlone) * filled);
  return std::max(traffic, turns.waves * block) + kLast * block;
}

TensorCorePlan plan_for(const Problem& p) {
  constexpr int kMaxSlabBytes = 200 << 10;
  constexpr int kMaxClusterThreads = 3072;  // more threads gain nothing
  TensorCorePlan best;
  double lowest = std::numeric_limits<double>::infinity();
  for (int groups = 1; groups <= p.g; ++groups) {
    const std::optional<TensorCorePlan> chunk = chunk_of(p, groups);
    if (!chunk) continue;
    for (int log_cluster = 0; 1 << log_cluster <= most_cluster_blocks(); ++log_cluster) {
      TensorCorePlan plan = *chunk;
      divide_pixels(p, log_cluster, plan);
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

const char* supports(const Problem& p) { return tensor_core::refusal(p, plan_for(p)); }

std::vector<KernelPlan<Forward>> plans(const Problem& p) {
  const TensorCorePlan plan = plan_for(p);
  KernelPlan<Forward> only{.name = "clusters"};
  dispatch_all_types(p, [&](auto element, auto act, auto parameter) {
    only.bind = [p, plan, kernel = groupnorm_forward_v11_kernel<decltype(element), decltype(act), decltype(parameter)>](
                    const Forward::Tensors& t, void*) {
      const LaunchConfig config = config_of(p, plan);
      const double bytes = double(p.elements()) * static_cast<double>(size_of(p.dtype));
      const StaggeredStart start = staggered_start(kernel, config, bytes);
      return bind_launch(kernel, config, p, t, plan, start, fits_l2(2 * bytes));
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

// Idea:   clusters of the first wave begin to load one after the other, as fast as memory serves them, instead of all at once.
// Parent: v09.
// Why:    v09's blocks load together, compute together and store together: memory idles while they compute. A block that
//         begins later leaves memory to those before it, which then compute while it loads. That works on whole blocks, so
//         there are at least three an SM, by larger clusters or narrower rows. Limiter: memory in fp32; in 16-bit types
//         still arithmetic and the exchange, of the blocks that load last.
// Needs:  what v09 does.

#include <cfloat>

#include "core/occupancy.h"
#include "dev/common/staggered_start.h"
#include "dev/groupnorm/parameters.h"
#include "dev/groupnorm/parts_of_x.h"
#include "dev/groupnorm/tensor_core/cluster_exchange.h"
#include "dev/groupnorm/tensor_core/normalised_stores.h"
#include "dev/groupnorm/tensor_core/tensor_core_sums.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/cp_async.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/maximum.h"

namespace ladder::groupnorm {
namespace {

using namespace tensor_core;

template <class T, class Act, class P>
__global__ void __launch_bounds__(kMaxThreads, kBlocksPerSm)
    groupnorm_forward_v10_kernel(Problem p, Forward::Tensors t, TensorCorePlan plan, StaggeredStart start) {
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
    for (int i = 0; i < kBatch; ++i) ptx::cp_async<16>(to + i * plan.threads, from + i * step, true);
  }
#pragma unroll 1
  for (; to < end; to += plan.threads, from += step) ptx::cp_async<16>(to, from, true);
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
    const float2 sum = sum_ranks<kMaxClusterBlocks>(plan, sums, round, group);
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

constexpr TuningParameters kTuning{
    .least_even_cluster = 1, .least_pixels = 256, .good_threads = 384, .column_threads = 128};

const char* supports(const Problem& p) { return tensor_core::refusal(p, plan_of(p, kTuning)); }

std::vector<KernelPlan<Forward>> plans(const Problem& p) {
  const TensorCorePlan plan = plan_of(p, kTuning);
  KernelPlan<Forward> only{.name = "clusters"};
  dispatch_all_types(p, [&](auto element, auto act, auto parameter) {
    only.bind = [p, plan, kernel = groupnorm_forward_v10_kernel<decltype(element), decltype(act), decltype(parameter)>](
                    const Forward::Tensors& t, void*) {
      const LaunchConfig config = config_of(p, plan);
      const StaggeredStart start = staggered_start(kernel, config, double(p.elements()) * sizeof(decltype(element)));
      return bind_launch(kernel, config, p, t, plan, start);
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

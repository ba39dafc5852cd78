// Idea:   y and dy stay in the registers they were loaded into: of some lanes of a warp, of a block, or of a cluster whose warps
//         send their sums to every block of it. A row too long for that is cut into parts: one kernel sums them, a second
//         one reads y and dy again.
// Parent: v02.
// Why:    y and dy are read once. A thread holds 64 bytes of each, so that an SM has 128 KB in flight, of four blocks whose loads
//         and stores overlap. Limiter: memory, and the time from a block's last store to the first load of the next one.
// Needs:  sm_90a's clusters for rows of more than 4096 elements; single elements where rows are no whole vectors.

#include "dev/ptx/cluster.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/softmax/row_part.h"
#include "dev/softmax/row_plan.h"

namespace ladder::softmax {
namespace {

constexpr int kMaxPerThread = kMaxValues / 2;  // of each of y and dy that a thread holds
constexpr int kPart = kBlockThreads * kMaxPerThread;

// The sum of y dy over a thread's elements.
template <int kValues>
__device__ __forceinline__ float dot(const float (&y)[kValues], const float (&dy)[kValues]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kValues; ++i) sum += y[i] * dy[i];
  return sum;
}

// dx in the place of dy.
template <int kValues>
__device__ __forceinline__ void take_gradient(const float (&y)[kValues], float (&dy)[kValues], float sum) {
#pragma unroll
  for (int i = 0; i < kValues; ++i) dy[i] = y[i] * (dy[i] - sum);
}

// `count` sums in memory added up, by a whole warp: all warps that do so get the same bits.
__device__ __forceinline__ float add_parts(const float* parts, int count) {
  float sum = 0;
  for (int i = threadIdx.x % 32; i < count; i += 32) sum += parts[i];
  return add_over_lanes(sum);
}

template <class T, int kWidth, int kValues, Holder kHolder>
__global__ void __launch_bounds__(kHolder == Holder::lanes ? kBlockThreads : kMaxThreads)
    softmax_backward_v03_kernel(Problem p, RowPlan plan, const T* y, const T* dy, T* dx) {
  LADDER_SHARED(float, parts, [kHolder == Holder::cluster ? kMaxParts : kMaxWarps]);
  if constexpr (kHolder == Holder::cluster) ptx::cluster_arrive_relaxed();  // this block has started
  const int thread = static_cast<int>(threadIdx.x);
  const int block = static_cast<int>(blockIdx.x);
  const int rank = block % plan.ranks;
  const int warps = plan.threads / 32;
  int row = block / plan.ranks;
  int first = first_vector<kWidth, kValues>(rank * warps + thread / 32);
  if constexpr (kHolder == Holder::lanes) {
    row = (block * kBlockThreads + thread) / plan.threads;
    first = thread % plan.threads;
  }
  const int vectors = row < p.m ? p.n / kWidth : 0;
  const std::int64_t row_offset = std::int64_t{row} * p.n;

  float probabilities[kValues];
  float gradients[kValues];
  ptx::grid_dependency_wait();
  load_part<T, kWidth>(y + row_offset, first, vectors, 0, probabilities);
  load_part<T, kWidth>(dy + row_offset, first, vectors, 0, gradients);
  ptx::grid_dependency_launch();

  // The sum of the warp, and that of the row.
  float sum = add_over_lanes(dot(probabilities, gradients), kHolder == Holder::lanes ? plan.threads : 32);
  if constexpr (kHolder == Holder::block) {
    if (thread % 32 == 0) parts[thread / 32] = sum;
    __syncthreads();
    sum = add_parts(parts, warps);
  }
  if constexpr (kHolder == Holder::cluster) {
    ptx::cluster_wait();  // all blocks have started
    const int to = thread % 32;
    if (to < plan.ranks) ptx::st_shared_cluster(ptx::mapa(parts + rank * warps + thread / 32, to), sum);
    ptx::cluster_sync();
    sum = add_parts(parts, plan.ranks * warps);
  }

  take_gradient(probabilities, gradients, sum);
  store_part<T, kWidth>(dx + row_offset, first, vectors, gradients);
}

// The sum of a part, into its place of [m][parts].
template <class T, int kWidth>
__global__ void __launch_bounds__(kBlockThreads)
    softmax_backward_v03_sums_kernel(Problem p, int parts, const T* y, const T* dy, float* sums) {
  LADDER_SHARED(float, warp_sums, [kBlockThreads / 32]);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t row_offset = std::int64_t{blockIdx.x / static_cast<unsigned>(parts)} * p.n;
  const int part = static_cast<int>(blockIdx.x) % parts;
  const int first = part * (kPart / kWidth) + first_vector<kWidth, kMaxPerThread>(thread / 32);
  float probabilities[kMaxPerThread];
  float gradients[kMaxPerThread];
  ptx::grid_dependency_wait();
  load_part<T, kWidth, false>(y + row_offset, first, p.n / kWidth, 0, probabilities);
  load_part<T, kWidth, false>(dy + row_offset, first, p.n / kWidth, 0, gradients);
  ptx::grid_dependency_launch();
  const float sum = add_over_lanes(dot(probabilities, gradients));
  if (thread % 32 == 0) warp_sums[thread / 32] = sum;
  __syncthreads();
  const float block_sum = add_parts(warp_sums, kBlockThreads / 32);
  if (thread == 0) sums[blockIdx.x] = block_sum;
}

// dx of a part. The last parts first: of those the L2 still has y and dy.
template <class T, int kWidth>
__global__ void __launch_bounds__(kBlockThreads)
    softmax_backward_v03_parts_kernel(Problem p, int parts, const T* y, const T* dy, const float* sums, T* dx) {
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int row = block / parts;
  const std::int64_t row_offset = std::int64_t{row} * p.n;
  const int first = block % parts * (kPart / kWidth) + first_vector<kWidth, kMaxPerThread>(threadIdx.x / 32);
  float probabilities[kMaxPerThread];
  float gradients[kMaxPerThread];
  ptx::grid_dependency_wait();
  load_part<T, kWidth>(y + row_offset, first, p.n / kWidth, 0, probabilities);
  load_part<T, kWidth>(dy + row_offset, first, p.n / kWidth, 0, gradients);
  const float sum = add_parts(sums + row * parts, parts);
  ptx::grid_dependency_launch();
  take_gradient(probabilities, gradients, sum);
  store_part<T, kWidth>(dx + row_offset, first, p.n / kWidth, gradients);
}

template <Holder kHolder>
KernelPlan<Backward> holding(const char* name, const Problem& p, const RowPlan& plan) {
  const LaunchConfig config = config_of(p, plan, kHolder);
  return {.name = name, .bind = [=](const Backward::Tensors& t, void*) {
            BoundLaunch bound;
            dispatch_values<kMaxPerThread>(p, plan.values, [&](auto element, auto width, auto values) {
              using T = decltype(element);
              constexpr int kValues = kHolder == Holder::lanes ? decltype(values)::value : kMaxPerThread;
              bound = bind_launch(softmax_backward_v03_kernel<T, width, kValues, kHolder>, config, p, plan,
                                  static_cast<const T*>(t.y), static_cast<const T*>(t.dy), static_cast<T*>(t.dx));
            });
            return bound;
          }};
}

KernelPlan<Backward> in_parts(const Problem& p) {
  const int parts = ceil_div(p.n, kPart);
  const LaunchConfig config{
      .grid = static_cast<unsigned>(p.m * parts), .block = kBlockThreads, .overlaps_previous = true};
  return {.name = "parts",
          .workspace_bytes = sizeof(float) * p.m * parts,
          .bind = [=](const Backward::Tensors& t, void* workspace) {
            BoundLaunch bound;
            auto* const sums = static_cast<float*>(workspace);
            dispatch_width(p.dtype, whole_vectors(p.n, p.dtype), [&](auto element, auto width) {
              using T = decltype(element);
              const auto* const y = static_cast<const T*>(t.y);
              const auto* const dy = static_cast<const T*>(t.dy);
              bound = in_order({bind_launch(softmax_backward_v03_sums_kernel<T, width>, config, p, parts, y, dy, sums),
                                bind_launch(softmax_backward_v03_parts_kernel<T, width>, config, p, parts, y, dy, sums,
                                            static_cast<T*>(t.dx))});
            });
            return bound;
          }};
}

// The first that can hold the row is the default.
std::vector<KernelPlan<Backward>> plans(const Problem& p) {
  std::vector<KernelPlan<Backward>> all;
  if (p.n <= 32 * kMaxPerThread) all.push_back(holding<Holder::lanes>("lanes", p, plan_lanes(p)));
  if (p.n <= kPart) all.push_back(holding<Holder::block>("block", p, plan_blocks(p.n, 1, kMaxPerThread)));
  if (p.n <= kMaxParts * 32 * kMaxPerThread)
    all.push_back(holding<Holder::cluster>("cluster", p, plan_cluster(p.n, kMaxPerThread)));
  all.push_back(in_parts(p));
  return all;
}

}  // namespace
}  // namespace ladder::softmax

LADDER_VERSION(ladder::softmax::Backward, {.plans = ladder::softmax::plans,
                                           .plan_names = {"lanes", "block", "cluster", "parts"},
                                           .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                           .min_arch = 90})

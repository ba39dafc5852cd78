// Idea:   a cluster of blocks holds a long row in its registers; each warp sends its max and sum to every block of it. A row
//         too long for that is cut into parts: one kernel takes their maxes and sums, a second one reads x again.
// Parent: v04.
// Why:    a row of 65536 is 256 KB in fp32, more than an SM has registers. Eight blocks of 256 threads hold it at 32 KB each, so
//         that an SM has four blocks of different rows: one's loads overlap another's exponentials and stores. Limiter:
//         memory, and the time from a block's last store to the first load of the next one in its place.
// Needs:  sm_90a's clusters for rows of more than 8192 elements; single elements where rows are no whole vectors.

#include "dev/ptx/cluster.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/softmax/row_part.h"
#include "dev/softmax/row_plan.h"

namespace ladder::softmax {
namespace {

template <class T, int kWidth, int kValues, Holder kHolder>
__global__ void __launch_bounds__(kHolder == Holder::lanes ? kBlockThreads : kMaxThreads)
    softmax_forward_v05_kernel(Problem p, RowPlan plan, const T* x, T* y) {
  LADDER_SHARED(MaxSum, parts, [kHolder == Holder::cluster ? kMaxParts : kMaxWarps]);
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
  x += std::int64_t{row} * p.n;
  y += std::int64_t{row} * p.n;

  float values[kValues];
  ptx::grid_dependency_wait();
  load_part<T, kWidth>(x, first, vectors, -INFINITY, values);
  ptx::grid_dependency_launch();

  // The warp's max and sum, and those of the row.
  const MaxSum part = take_exponentials(values, kHolder == Holder::lanes ? plan.threads : 32);
  MaxSum row_max_sum = part;
  if constexpr (kHolder == Holder::block) {
    if (thread % 32 == 0) parts[thread / 32] = part;
    __syncthreads();
    row_max_sum = merge_parts(parts, warps);
  }
  if constexpr (kHolder == Holder::cluster) {
    ptx::cluster_wait();  // all blocks have started
    const int to = thread % 32;
    if (to < plan.ranks) ptx::st_shared_cluster(ptx::mapa(parts + rank * warps + thread / 32, to), part);
    ptx::cluster_sync();
    row_max_sum = merge_parts(parts, plan.ranks * warps);
  }

  multiply(values, factor_of(part, row_max_sum));
  store_part<T, kWidth>(y, first, vectors, values);
}

// Rows cut into parts of a block each.
constexpr int kPart = kBlockThreads * kMaxValues;

// The max and sum of a part, into its place of [m][parts].
template <class T, int kWidth>
__global__ void __launch_bounds__(kBlockThreads)
    softmax_forward_v05_sums_kernel(Problem p, int parts, const T* x, MaxSum* sums) {
  LADDER_SHARED(MaxSum, warp_parts, [kBlockThreads / 32]);
  const int thread = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.x) / parts;
  const int part = static_cast<int>(blockIdx.x) % parts;
  float values[kMaxValues];
  ptx::grid_dependency_wait();
  load_part<T, kWidth, false>(x + std::int64_t{row} * p.n,
                              part * (kPart / kWidth) + first_vector<kWidth, kMaxValues>(thread / 32), p.n / kWidth,
                              -INFINITY, values);
  ptx::grid_dependency_launch();
  const MaxSum sum = take_exponentials(values);
  if (thread % 32 == 0) warp_parts[thread / 32] = sum;
  __syncthreads();
  const MaxSum block_max_sum = merge_parts(warp_parts, kBlockThreads / 32);
  if (thread == 0) sums[blockIdx.x] = block_max_sum;
}

// y of a part. The last parts first: of those the L2 still has x.
template <class T, int kWidth>
__global__ void __launch_bounds__(kBlockThreads)
    softmax_forward_v05_parts_kernel(Problem p, int parts, const T* x, const MaxSum* sums, T* y) {
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int row = block / parts;
  const int first = block % parts * (kPart / kWidth) + first_vector<kWidth, kMaxValues>(threadIdx.x / 32);
  float values[kMaxValues];
  ptx::grid_dependency_wait();
  load_part<T, kWidth>(x + std::int64_t{row} * p.n, first, p.n / kWidth, -INFINITY, values);
  const MaxSum row_max_sum = merge_parts(sums + row * parts, parts);
  ptx::grid_dependency_launch();
  const float factor = 1.0f / row_max_sum.sum;
#pragma unroll
  for (float& value : values) value = exponential(value, row_max_sum.max) * factor;
  store_part<T, kWidth>(y + std::int64_t{row} * p.n, first, p.n / kWidth, values);
}

template <Holder kHolder>
KernelPlan<Forward> holding(const char* name, const Problem& p, const RowPlan& plan) {
  const LaunchConfig config = config_of(p, plan, kHolder);
  return {.name = name, .bind = [=](const Forward::Tensors& t, void*) {
            BoundLaunch bound;
            dispatch_values(p, plan.values, [&](auto element, auto width, auto values) {
              using T = decltype(element);
              constexpr int kValues = kHolder == Holder::lanes ? decltype(values)::value : kMaxValues;
              bound = bind_launch(softmax_forward_v05_kernel<T, width, kValues, kHolder>, config, p, plan,
                                  static_cast<const T*>(t.x), static_cast<T*>(t.y));
            });
            return bound;
          }};
}

KernelPlan<Forward> in_parts(const Problem& p) {
  const int parts = ceil_div(p.n, kPart);
  const LaunchConfig config{
      .grid = static_cast<unsigned>(p.m * parts), .block = kBlockThreads, .overlaps_previous = true};
  return {.name = "parts",
          .workspace_bytes = sizeof(MaxSum) * p.m * parts,
          .bind = [=](const Forward::Tensors& t, void* workspace) {
            BoundLaunch bound;
            auto* const sums = static_cast<MaxSum*>(workspace);
            dispatch_width(p.dtype, whole_vectors(p.n, p.dtype), [&](auto element, auto width) {
              using T = decltype(element);
              const auto* const x = static_cast<const T*>(t.x);
              bound = in_order({bind_launch(softmax_forward_v05_sums_kernel<T, width>, config, p, parts, x, sums),
                                bind_launch(softmax_forward_v05_parts_kernel<T, width>, config, p, parts, x, sums,
                                            static_cast<T*>(t.y))});
            });
            return bound;
          }};
}

// The first that can hold the row is the default.
std::vector<KernelPlan<Forward>> plans(const Problem& p) {
  std::vector<KernelPlan<Forward>> all;
  if (p.n <= kMaxElementsOfLanes) all.push_back(holding<Holder::lanes>("lanes", p, plan_lanes(p)));
  if (p.n <= kBlockThreads * kMaxValues) all.push_back(holding<Holder::block>("block", p, plan_blocks(p.n, 1)));
  if (p.n <= kMaxParts * kMaxElementsOfLanes) all.push_back(holding<Holder::cluster>("cluster", p, plan_cluster(p.n)));
  all.push_back(in_parts(p));
  return all;
}

}  // namespace
}  // namespace ladder::softmax

LADDER_VERSION(ladder::softmax::Forward, {.plans = ladder::softmax::plans,
                                          .plan_names = {"lanes", "block", "cluster", "parts"},
                                          .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                          .min_arch = 90})

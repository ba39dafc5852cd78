// Idea:   clusters that persist: while a row is in registers, each thread's vectors of the next two rows are on their way into
//         shared memory.
// Parent: v05.
// Why:    v05's block loads nothing from its first exponential to its end, nor does the next one until it has started. Here every
//         SM has 192 KB on their way at any time: 3 blocks, of 2 rows each. A thread reads what it copied itself, so that
//         nothing but the exchange of maxes and sums makes it wait for others; that completes on an mbarrier, which spares
//         the cluster's barrier and its wait for the stores of the row before. Limiter: memory.
// Needs:  rows of whole vectors of sixteen bytes, of at most 65536 elements; sm_90a's clusters. Rows of less than a warp's
//         registers leave lanes idle: v05 has several of them in a block.

#include "dev/ptx/cache_policy.h"
#include "dev/ptx/cluster.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/softmax/row_part.h"
#include "dev/softmax/row_plan.h"

namespace ladder::softmax {
namespace {

constexpr int kStages = 2;
[[maybe_unused]] constexpr int kBlocksPerSm = 3;  // of kStages times 32 KB: what an SM has shared memory for
constexpr int kWarps = kBlockThreads / 32;
constexpr int kMaxParts = kMaxClusterBlocks * kWarps;

template <class T, bool kCluster>
__global__ void __launch_bounds__(kBlockThreads, kBlocksPerSm)
    softmax_forward_v06_kernel(Problem p, RowPlan plan, const T* x, T* y) {
  constexpr int kVec = kVector<T>;
  constexpr int kVectorsPerThread = kMaxValues / kVec;
  LADDER_DYN_SMEM(smem);  // uint4 [kStages][kVectorsPerThread][threads]
  LADDER_SHARED(MaxSum, parts, [2][kMaxParts]);
  LADDER_SHARED(ptx::Mbarrier, arrived, [2]);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int warps = plan.threads / 32;
  const int rank = static_cast<int>(blockIdx.x) % plan.ranks;
  const int clusters = static_cast<int>(gridDim.x) / plan.ranks;
  if constexpr (kCluster) {
    if (thread == 0) {
      ptx::mbarrier_init(&arrived[0], 1);
      ptx::mbarrier_init(&arrived[1], 1);
      ptx::mbarrier_fence_init();
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();  // this block has started
  }
  const ptx::CachePolicy policy = ptx::evict_policy(true);
  const int vectors = p.n / kVec;
  const int first = first_vector<kVec, kMaxValues>(rank * warps + warp);
  auto* const thread_smem = reinterpret_cast<uint4*>(smem) + thread;

  // Starts the copies of the thread's vectors of a row. Beyond the last row a group is empty, so that all turns count alike.
  const auto start_copies = [&](int row, int stage) {
    if (row < p.m) {
      const auto* const from = reinterpret_cast<const uint4*>(x + std::int64_t{row} * p.n) + first;
#pragma unroll
      for (int i = 0; i < kVectorsPerThread; ++i) {
        if (first + 32 * i < vectors) {
          ptx::cp_async_16(thread_smem + (stage * kVectorsPerThread + i) * plan.threads, from + 32 * i, true, policy);
        }
      }
    }
    ptx::cp_async_commit();
  };

  int row = static_cast<int>(blockIdx.x) / plan.ranks;
  ptx::grid_dependency_wait();
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) start_copies(row + stage * clusters, stage);
  if constexpr (kCluster) ptx::cluster_wait();  // all blocks have started

#pragma unroll 1
  for (int iteration = 0; row < p.m; row += clusters, ++iteration) {
    // Read what has come of this row, and have the next but one take its place.
    const int stage = iteration % kStages;
    ptx::cp_async_wait<kStages - 1>();
    float values[kMaxValues];
#pragma unroll
    for (int i = 0; i < kVectorsPerThread; ++i) {
      float vector[kVec];
      if (first + 32 * i < vectors) unpack<T>(thread_smem[(stage * kVectorsPerThread + i) * plan.threads], vector);
#pragma unroll
      for (int v = 0; v < kVec; ++v) values[i * kVec + v] = first + 32 * i < vectors ? vector[v] : -INFINITY;
    }
    start_copies(row + kStages * clusters, stage);
    if (row + clusters >= p.m) ptx::grid_dependency_launch();

    // The warp's max and sum go to all warps of the row. Two rows' are kept: whoever sends those of the next but one has got
    // all of the next one, which each warp sent after it had read these.
    const MaxSum part = take_exponentials(values);
    const int slot = iteration % 2;
    if constexpr (kCluster) {
      if (thread == 0) {
        ptx::mbarrier_arrive_expect_tx(&arrived[slot], plan.ranks * warps * static_cast<unsigned>(sizeof(MaxSum)));
      }
      const int to = thread % 32;
      if (to < plan.ranks) {
        ptx::st_async(ptx::mapa(parts[slot] + rank * warps + warp, to), part, ptx::mapa(&arrived[slot], to));
      }
      ptx::mbarrier_wait_cluster(&arrived[slot], iteration / 2 % 2);
    } else {
      if (thread % 32 == 0) parts[slot][warp] = part;
      __syncthreads();
    }
    const MaxSum row_max_sum = merge_parts(parts[slot], plan.ranks * warps);
    multiply(values, factor_of(part, row_max_sum));
    store_part<T, kVec>(y + std::int64_t{row} * p.n, first, vectors, values);
  }
}

// In as few blocks as hold a row; or, for the tests, in a cluster at least.
RowPlan plan_of(const Problem& p, bool cluster) {
  return !cluster && p.n <= kBlockThreads * kMaxValues ? plan_blocks(p.n, 1) : plan_cluster(p.n);
}

const char* supports(const Problem& p) {
  if (!whole_vectors(p.n, p.dtype)) return "rows are no whole vectors of 16 bytes";
  if (p.n > kMaxClusterBlocks * kBlockThreads * kMaxValues) return "a row is longer than 65536 elements";
  return nullptr;
}

KernelPlan<Forward> ring_plan(const char* name, const Problem& p, const RowPlan& plan) {
  return {.name = name, .bind = [=](const Forward::Tensors& t, void*) {
            return with_storage_type(p.dtype, [&](auto element) {
              using T = decltype(element);
              const auto kernel =
                  plan.ranks > 1 ? softmax_forward_v06_kernel<T, true> : softmax_forward_v06_kernel<T, false>;
              LaunchConfig config{.grid = static_cast<unsigned>(plan.ranks),
                                  .block = static_cast<unsigned>(plan.threads),
                                  .dynamic_smem = std::size_t{kStages} * kMaxValues * sizeof(T) * plan.threads,
                                  .cluster = static_cast<unsigned>(plan.ranks),
                                  .overlaps_previous = true};
              config.grid = static_cast<unsigned>(plan.ranks * std::min(p.m, resident_clusters(kernel, config)));
              return bind_launch(kernel, config, p, plan, static_cast<const T*>(t.x), static_cast<T*>(t.y));
            });
          }};
}

std::vector<KernelPlan<Forward>> plans(const Problem& p) {
  std::vector<KernelPlan<Forward>> all;
  const RowPlan plan = plan_of(p, false);
  if (plan.ranks == 1) all.push_back(ring_plan("block", p, plan));
  all.push_back(ring_plan("cluster", p, plan_of(p, true)));
  return all;
}

}  // namespace
}  // namespace ladder::softmax

LADDER_VERSION(ladder::softmax::Forward, {.plans = ladder::softmax::plans,
                                          .plan_names = {"block", "cluster"},
                                          .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                          .supports = ladder::softmax::supports,
                                          .min_arch = 90,
                                          .needs = "rows of whole vectors, of at most 65536 elements"})

// Idea:   wgmma: a warpgroup has 64 keys, and makes scores and dp transposed, so that p and ds leave the first products as the
//         A, in registers, of those that make dv and dk. ds alone goes through shared memory, once, for dq: there its rows are
//         keys, as they left the registers, and the product reads them MN-major. One warpgroup of a block makes dq of 64 queries
//         while the other goes on. Keys over a cluster as in v05.
// Parent: v05.
// Why:    a warp of v05 has 16 keys, so it loads each fragment of q and d_o four times as often as 64 keys need it, and turns
//         them by ldmatrix, much of its time. wgmma reads both from where they lie. Queries come 64 at a time, and the first
//         are used while the others are on their way. Limiter left: products of 32 columns read A at half their rate.
// Needs:  sm_90a; 16 bits; at most 256 tokens.

// Shared memory of a block of kKeys keys; all but lse and delta swizzled by the width of their rows:
//     keys         [kKeys][k]
//     values       [kKeys][v]
//     ds_tile      [kKeys][64 queries of the step]
//     lse, delta   [queries] fp32
//     queries      [step][q, then d_o][64 queries]; a step's room later has its dq [64][d] fp32
// Step of 64 queries:
//     all groups              s' = k q', dp' = v d_o'; p, ds in registers; dv += p' d_o, dk += ds' q; ds to ds_tile
//     group step % kGroups    dq = ds k over the block's keys, while the other group begins the next step
//     after the last step     each block adds all blocks' dq of a part of the queries, over the cluster

#include "dev/attention/heads.h"
#include "dev/attention/wgmma_rows.h"
#include "dev/common/cluster_sums.h"
#include "dev/common/quads.h"
#include "dev/ptx/approximate.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/opaque.h"

namespace ladder::attention {
namespace {

constexpr int kStepQueries = 64;
constexpr int kMaxTokens = 256;

template <int kD, int kGroups_>
struct WgmmaKeysShape {
  static constexpr int kGroups = kGroups_;  // of 64 keys
  static constexpr int kThreads = kGroups * kGroupThreads;
  static constexpr int kKeys = kGroups * kGroupRows;
  static constexpr bool kSingleBlock = kGroups == 1;  // these are all tokens of an image
  static constexpr int kSteps = kSingleBlock ? 1 : kMaxTokens / kStepQueries;
  // Queries of a product: as many as sums have registers for, four groups an SM.
  static constexpr int kColumns = kD == 32 || kSingleBlock ? 64 : 32;
  static constexpr int kBlocksPerSm = kSingleBlock ? 3 : 2;
  static constexpr int kRowBytes = 2 * kD;
  static constexpr int kStepBytes = 2 * kStepQueries * kRowBytes;  // q, then d_o; later dq in fp32
  static constexpr int kDsRowBytes = kStepQueries * 2;
  static constexpr int kPairBytes = ceil_div(kSteps * kStepQueries * 8, 1024) * 1024;  // so that tiles stay aligned

  static int ranks(int t) { return ceil_div(t, kKeys); }
  static std::size_t smem_bytes(int t) {
    return std::size_t{1} * kKeys * (2 * kRowBytes + kDsRowBytes) + kPairBytes + ceil_div(t, kStepQueries) * kStepBytes;
  }
};

// Four sums of a query's dq, in place of what its step's queries and d_o were.
template <class S>
__device__ __forceinline__ float4* dq_quad(unsigned char* queries, int query, int quad) {
  unsigned char* const row = queries + query * 2 * S::kRowBytes;
  return reinterpret_cast<float4*>(row) + (quad ^ query % 8);
}

// lse log2(e) and delta of the queries, kRuns lanes a query. One that is not there has p = 2^-infinity.
template <class T, int kD, class S>
class Statistics {
 public:
  __device__ __forceinline__ void load(const HeadRows<const T>& o, const HeadRows<const T>& d_o, int t) {
#pragma unroll
    for (int i = 0; i < kQueriesPerThread; ++i) {
      const int query = query_of(i);
      const int run = threadIdx.x % kRuns * kVector<T>;
      o_[i] = d_o_[i] = {};
      if (query < t) {
        o_[i] = *reinterpret_cast<const uint4*>(o.row(query) + run);
        d_o_[i] = *reinterpret_cast<const uint4*>(d_o.row(query) + run);
      }
    }
  }

  __device__ __forceinline__ void store(float* lses, float* deltas, const float* lse, int t) const {
#pragma unroll
    for (int i = 0; i < kQueriesPerThread; ++i) {
      float a[kVector<T>];
      float b[kVector<T>];
      unpack<T>(o_[i], a);
      unpack<T>(d_o_[i], b);
      float delta = 0;
#pragma unroll
      for (int x = 0; x < kVector<T>; ++x) delta += a[x] * b[x];
      delta = quad_sum(delta);
      if constexpr (kRuns == 8) delta += __shfl_xor_sync(0xffffffffu, delta, 4);
      const int query = query_of(i);
      if (threadIdx.x % kRuns == 0) {
        lses[query] = query < t ? lse[query] * kLog2E : INFINITY;
        deltas[query] = delta;
      }
    }
  }

 private:
  static constexpr int kRuns = S::kRowBytes / 16;
  static constexpr int kQueriesPerThread = S::kSteps * kStepQueries * kRuns / S::kThreads;

  __device__ __forceinline__ static int query_of(int i) { return (threadIdx.x + i * S::kThreads) / kRuns; }

  uint4 o_[kQueriesPerThread], d_o_[kQueriesPerThread];
};

template <class T, int kD, class S, class View>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksPerSm)
    attention_backward_v06_kernel(Sizes p, int ranks, float scale, float scale_log2,
                                  typename View::template Qkv<const T> qkv, const T* o, const float* lse,
                                  typename View::template Heads<const T> d_o, typename View::template Qkv<T> dqkv) {
  constexpr int kRowBytes = S::kRowBytes;
  constexpr int kDoBytes = kStepQueries * kRowBytes;  // from a step's queries to its d_o
  const int steps = ceil_div(p.t, kStepQueries);
  LADDER_DYN_SMEM(smem);                                                              // all swizzled but the statistics
  unsigned char* const keys = smem;                                                   // [key][k]
  unsigned char* const values = keys + S::kKeys * kRowBytes;                          // [key][v]
  unsigned char* const ds_tile = values + S::kKeys * kRowBytes;                       // [key][a step's queries]
  float* const lses = reinterpret_cast<float*>(ds_tile + S::kKeys * S::kDsRowBytes);  // [query], times log2(e)
  float* const deltas = lses + S::kSteps * kStepQueries;                              // [query]
  unsigned char* const queries =
      ds_tile + S::kKeys * S::kDsRowBytes + S::kPairBytes;  // [step][q, then d_o][query], then [query][dq]

  const int rank = S::kSingleBlock ? 0 : blockIdx.x % ranks;
  const int head = S::kSingleBlock ? blockIdx.x : blockIdx.x / ranks;
  const int image = blockIdx.y;
  const int block_key0 = rank * S::kKeys;
  const auto head_qkv = View::parts(qkv, p, kD, image, head);
  const HeadRows<const T> d_o_rows = View::rows(d_o, p, kD, image, head);
  const auto fetch = [&](int step) {
    unsigned char* const to = queries + step * S::kStepBytes;
    copy_rows<T, kD, kStepQueries, S::kThreads>(to, head_qkv.q(), head_qkv.q_pitch(), step * kStepQueries, p.t);
    copy_rows<T, kD, kStepQueries, S::kThreads>(to + kDoBytes, d_o_rows.begin(), d_o_rows.pitch, step * kStepQueries,
                                                p.t);
  };
  ptx::grid_dependency_wait();
  copy_rows<T, kD, S::kKeys, S::kThreads>(keys, head_qkv.k(), head_qkv.k_pitch(), block_key0, p.t);
  copy_rows<T, kD, S::kKeys, S::kThreads>(values, head_qkv.v(), head_qkv.v_pitch(), block_key0, p.t);
  fetch(0);
  ptx::cp_async_commit();
  {
    Statistics<T, kD, S> rows;
    rows.load(Legacy::rows(o, p, kD, image, head), d_o_rows, p.t);
#pragma unroll 1
    for (int step = 1; step < S::kSteps; ++step) {
      if (step < steps) fetch(step);
      ptx::cp_async_commit();  // one group a step, empty or not, so that the count of pending groups tells the step
    }
    rows.store(lses, deltas, lse + (image * p.heads + head) * p.t, p.t);
  }
  ptx::grid_dependency_launch();
  ptx::cp_async_wait<S::kSteps - 1>();
  ptx::wgmma_fence_stores();
  __syncthreads();

  const int lane = threadIdx.x % 32;
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / kGroupThreads, 0);  // so that it is known to be a warp's
  const int key = threadIdx.x / 32 * 16 + lane / 4;                            // this lane's first; the other is 8 on
  const bool inside[2] = {block_key0 + key < p.t, block_key0 + key + 8 < p.t};
  const std::uint64_t key_rows = rows_operand<kRowBytes>(keys);
  const std::uint64_t ds_rows = rows_operand<S::kDsRowBytes>(ds_tile);
  const std::uint64_t group_keys = ptx::wgmma_ahead(key_rows, group * kGroupRows * kRowBytes);
  const std::uint64_t group_values = ptx::wgmma_ahead(group_keys, S::kKeys * kRowBytes);
  const std::uint64_t query_rows = rows_operand<kRowBytes>(queries);
  float dk[kD / 2] = {};
  float dv[kD / 2] = {};

  for (int step = 0; step < steps; ++step) {
#pragma unroll 1
    for (int query = 0; query < kStepQueries; query += S::kColumns) {
      // Scores and dp of all of the group's keys, as rows. A lane's columns of eight are 2 (lane % 4) and the next.
      const std::uint64_t q = ptx::wgmma_ahead(query_rows, step * S::kStepBytes + query * kRowBytes);
      const std::uint64_t d_o_tile = ptx::wgmma_ahead(q, kDoBytes);
      float s[S::kColumns / 2];
      float dp[S::kColumns / 2];
      ptx::wgmma_fence();
#pragma unroll
      for (int i = 0; i < kD / kDepth; ++i) {
        ptx::wgmma_m64<T, S::kColumns>(s, ptx::wgmma_ahead(group_keys, i * kTermBytes),
                                       ptx::wgmma_ahead(q, i * kTermBytes), i > 0);
      }
      ptx::wgmma_commit();
#pragma unroll
      for (int i = 0; i < kD / kDepth; ++i) {
        ptx::wgmma_m64<T, S::kColumns>(dp, ptx::wgmma_ahead(group_values, i * kTermBytes),
                                       ptx::wgmma_ahead(d_o_tile, i * kTermBytes), i > 0);
      }
      ptx::wgmma_commit();
      const int pair = (step * kStepQueries + query) / 2 + lane % 4;
      ptx::wgmma_wait<1>();
      ptx::warpgroup_fence_operand(s);
#pragma unroll
      for (int i = 0; i < S::kColumns / 2; ++i) {
        const float2 lse_pair = reinterpret_cast<const float2*>(lses)[pair + i / 4 * 4];
        s[i] = ptx::exp2_approximate(fmaf(s[i], scale_log2, i % 2 ? -lse_pair.y : -lse_pair.x));
      }
      ptx::wgmma_wait<0>();
      ptx::warpgroup_fence_operand(dp);
      std::uint32_t probabilities[S::kColumns / kDepth][4];
      std::uint32_t ds[S::kColumns / kDepth][4];
#pragma unroll
      for (int i = 0; i < S::kColumns / 2; ++i) {
        const float2 delta_pair = reinterpret_cast<const float2*>(deltas)[pair + i / 4 * 4];
        dp[i] = s[i] * (dp[i] - (i % 2 ? delta_pair.y : delta_pair.x));
      }
#pragma unroll
      for (int i = 0; i < S::kColumns / kDepth; ++i) {
        as_operand<T>(probabilities[i], s, i);
        as_operand<T>(ds[i], dp, i);
      }

      ptx::wgmma_fence();
#pragma unroll
      for (int i = 0; i < S::kColumns / kDepth; ++i) {
        const int rows = i * kDepth * kRowBytes;
        ptx::wgmma_m64_a_registers_b_mn<T, kD>(dv, probabilities[i], ptx::wgmma_ahead(d_o_tile, rows), true);
        ptx::wgmma_m64_a_registers_b_mn<T, kD>(dk, ds[i], ptx::wgmma_ahead(q, rows), true);
      }
      ptx::wgmma_commit();

      // ds for dq, a key's row of it, once the step before has been read. Word w is keys 8 (w % 2), queries 8 (w / 2) onwards.
      if (query == 0 && step > 0) __syncthreads();
#pragma unroll
      for (int i = 0; i < S::kColumns / kDepth; ++i) {
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          unsigned char* const run =
              ds_tile + swizzled_run<S::kDsRowBytes>(key + 8 * (w % 2), query / 8 + 2 * i + w / 2);
          *reinterpret_cast<std::uint32_t*>(run + lane % 4 * 4) = inside[w % 2] ? ds[i][w] : 0;
        }
      }
      ptx::wgmma_wait<0>();
      ptx::warpgroup_fence_operand(dk);
      ptx::warpgroup_fence_operand(dv);
      ptx::warpgroup_fence_operand(probabilities);
      ptx::warpgroup_fence_operand(ds);
    }
    ptx::cp_async_commit();
    ptx::cp_async_wait<S::kSteps - 1>();
    ptx::wgmma_fence_stores();
    __syncthreads();  // ds is there, and the next queries; nobody needs this step's any more

    // dq of the step, over the block's keys, by the groups in turn. ds lies transposed.
    if (step % S::kGroups != group) continue;
    float dq[kD / 2];
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < S::kKeys / kDepth; ++i) {
      ptx::wgmma_m64_mn<T, kD>(dq, ptx::wgmma_ahead(ds_rows, i * kDepth * S::kDsRowBytes),
                               ptx::wgmma_ahead(key_rows, i * kDepth * kRowBytes), i > 0);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::warpgroup_fence_operand(dq);
    const int query = threadIdx.x % kGroupThreads / 32 * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (S::kSingleBlock) {
        const auto gradients = View::parts(dqkv, p, kD, image, head);
        const int row = query + 8 * half;
        store_sums<T, kD>(gradients.q(row), dq, half, scale, row < p.t);
      } else {
#pragma unroll
        for (int eight = 0; eight < kD / 8; ++eight) {
          float4* const quad = dq_quad<S>(queries, step * kStepQueries + query + 8 * half, 2 * eight + lane % 4 / 2);
          reinterpret_cast<float2*>(quad)[lane % 2] = {dq[4 * eight + 2 * half], dq[4 * eight + 2 * half + 1]};
        }
      }
    }
  }
  if constexpr (!S::kSingleBlock) ptx::cluster_arrive();

  const auto gradients = View::parts(dqkv, p, kD, image, head);
  const int out_row0 = ptx::opaque(block_key0 + key);  // or its addresses would take registers from the loop
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = out_row0 + 8 * half;
    store_sums<T, kD>(gradients.k(row), dk, half, scale, row < p.t);
    store_sums<T, kD>(gradients.v(row), dv, half, 1.0f, row < p.t);
  }

  // A share of the queries: what all blocks have of dq.
  if constexpr (!S::kSingleBlock) {
    ptx::cluster_wait();
    constexpr int kQuads = kD / 4;
    for (int i = threadIdx.x + rank * S::kThreads; i < p.t * kQuads; i += ranks * S::kThreads) {
      const float4 sum = sum_over_cluster(dq_quad<S>(queries, i / kQuads, i % kQuads), ranks);
      *reinterpret_cast<Quad<T>*>(gradients.q(i / kQuads) + i % kQuads * 4) =
          pack_quad<T>({scale * sum.x, scale * sum.y, scale * sum.z, scale * sum.w});
    }
    // A block's memory is there for the others until they have read it.
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
}

template <class T, int kD, int kGroups, class View>
KernelPlan<Backward> keys_plan(const Problem& p, const char* name) {
  using S = WgmmaKeysShape<kD, kGroups>;
  const auto bind = [p](const Backward::Tensors& t, void*) {
    const int ranks = S::ranks(p.t);
    return bind_launch(attention_backward_v06_kernel<T, kD, S, View>,
                       {.grid = dim3(p.heads * ranks, p.n),
                        .block = S::kThreads,
                        .dynamic_smem = S::smem_bytes(p.t),
                        .cluster = static_cast<unsigned>(ranks),
                        .overlaps_previous = true},
                       p.sizes(), ranks, scale_of(p), scale_of(p) * kLog2E, View::template inputs<T>(p, t),
                       static_cast<const T*>(t.o), t.lse, View::template d_o<T>(p, t),
                       View::template gradients<T>(p, t));
  };
  return {.name = name, .bind = bind};
}

std::vector<KernelPlan<Backward>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Backward>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      return with_view(p, [&]<class View>(View) {
        const auto chosen = [&]<int kD>() -> std::vector<KernelPlan<Backward>> {
          if (p.t <= kGroupRows) return {keys_plan<T, kD, 1, View>(p, "64")};
          return {keys_plan<T, kD, 2, View>(p, "128")};
        };
        return p.d == 32 ? chosen.template operator()<32>() : chosen.template operator()<64>();
      });
    } else {
      return {};
    }
  });
}

const char* supports(const Problem& p) {
  if (p.t > kMaxTokens) return "a block has shared memory for the queries of 256 tokens";
  if (p.n > 65535 || p.heads > 16383) return "a grid has at most 65535 blocks of n, and of heads and their parts";
  return unaligned_rows(p);
}

}  // namespace
}  // namespace ladder::attention

LADDER_VERSION(ladder::attention::Backward, {.plans = ladder::attention::plans,
                                             .plan_names = {"64", "128"},
                                             .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                             .supports = ladder::attention::supports,
                                             .min_arch = 90,
                                             .arch_specific = true})

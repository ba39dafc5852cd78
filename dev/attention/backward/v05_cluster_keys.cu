// Idea:   the keys of a head are split over a cluster: a block has 128 of them and sums dq over its own keys. The sums
//         of every step replace the step's queries in shared memory, which are no longer needed. At the end each block
//         takes a share of the queries and adds the sums of all blocks of the cluster, in the order of their ranks.
// Parent: v04.
// Why:    a head of 256 tokens is one block of v04: 192 blocks on 132 SMs, 60 of them with two and 72 with one, at the
//         two blocks an SM that 32 keys a warp leave room for. Halves are 384 blocks, 2.9 an SM, all resident at once
//         with 16 keys a warp, for 16 KB of dq through distributed shared memory and two cluster barriers. Limiter
//         left: the tensor cores wait at two barriers for every 64 queries.
// Needs:  sm_90; 16 bits; at most 256 tokens.
// Spills: 32 bytes of fragment addresses with 128 keys at d = 32, and 4 at d = 64 if strided, so that three blocks
//         share an SM.

#include "dev/attention/heads.h"
#include "dev/attention/mma_rows.h"
#include "dev/attention/mma_tile.h"
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

template <int kD, int kWarps_>
struct ClusterKeysShape {
  static constexpr int kWarps = kWarps_;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kKeys = kWarps * 16;  // of a block
  static constexpr int kRowBytes = 4 * kD;   // of k and v, of q and d_o, and of dq in fp32
  static constexpr int kDsBytes = kKeys * kStepQueries * 2;
  // A step's dq is 64 x kD: a warp takes 16 queries, and kParts warps share these, each with a part of the channels.
  static constexpr int kParts = kWarps / (kStepQueries / 16);
  static constexpr int kPartRuns = kD / 8 / kParts;
  static_assert(kParts >= 1 && kPartRuns % 2 == 0, "a fragment of k is sixteen channels");

  static int queries(int t) { return ceil_div(t, kStepQueries) * kStepQueries; }
  static int ranks(int t) { return ceil_div(t, kKeys); }
  static std::size_t smem_bytes(int t) {
    return std::size_t{1} * (kKeys + queries(t)) * kRowBytes + kDsBytes + queries(t) * sizeof(float2);
  }
};

// Four fp32 sums of dq in shared memory: quad `quad` of row `query`, swizzled as q's rows were.
template <int kD>
__device__ __forceinline__ float4* dq_quad(unsigned char* queries, int query, int quad) {
  return reinterpret_cast<float4*>(queries + swizzled<4 * kD>(query, quad));
}

template <class T, int kD, class S, class View>
__global__ void __launch_bounds__(S::kThreads, kD == 32 ? 3 : 2)
    attention_backward_v05_kernel(Sizes p, int ranks, float scale, typename View::template Qkv<const T> qkv, const T* o,
                                  const float* lse, typename View::template Heads<const T> d_o,
                                  typename View::template Qkv<T> dqkv) {
  constexpr int kRowBytes = S::kRowBytes;
  constexpr int kDsRowBytes = kStepQueries * 2;
  const int padded_queries = ceil_div(p.t, kStepQueries) * kStepQueries;
  LADDER_DYN_SMEM(smem);
  unsigned char* const keys = smem;                                     // [key][k v], swizzled
  unsigned char* const queries = keys + S::kKeys * kRowBytes;           // [query][q d_o], then [query][dq], swizzled
  unsigned char* const ds_tile = queries + padded_queries * kRowBytes;  // [key][a step's queries], swizzled
  float2* const statistics = reinterpret_cast<float2*>(ds_tile + S::kDsBytes);  // of queries: lse log2(e), delta

  const int rank = blockIdx.x % ranks;
  const int head = blockIdx.x / ranks;
  const int image = blockIdx.y;
  const auto head_qkv = View::parts(qkv, p, kD, image, head);
  const HeadRows<const T> o_rows = Legacy::rows(o, p, kD, image, head);
  const HeadRows<const T> d_o_rows = View::rows(d_o, p, kD, image, head);
  const int block_key0 = rank * S::kKeys;
  ptx::grid_dependency_wait();
  copy_pairs<T, kD, S::kKeys, S::kThreads>(keys, head_qkv.k(), head_qkv.k_pitch(), head_qkv.v(), head_qkv.v_pitch(),
                                           block_key0, p.t);
  for (int query = 0; query < padded_queries; query += kStepQueries) {
    copy_pairs<T, kD, kStepQueries, S::kThreads>(queries + query * kRowBytes, head_qkv.q(), head_qkv.q_pitch(),
                                                 d_o_rows.begin(), d_o_rows.pitch, query, p.t);
  }
  ptx::cp_async_commit();

  // delta, one query a thread; o is loaded while the copies are in flight. Out-of-range queries: lse = +inf, p = 0.
  for (int i = threadIdx.x; i < padded_queries; i += S::kThreads) {
    const T* const o_row = o + o_rows.index(i);
    const T* const d_o_row = d_o_rows.tensor + d_o_rows.index(i);
    float2 both = {INFINITY, 0.0f};
    if (i < p.t) both = {lse[(image * p.heads + head) * p.t + i] * kLog2E, delta_of<T, kD>(o_row, d_o_row)};
    statistics[i] = both;
  }
  ptx::grid_dependency_launch();
  ptx::cp_async_wait<0>();
  __syncthreads();

  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int key0 = warp * 16;
  const int num_keys = min(S::kKeys, p.t - block_key0);
  const float scale_log2 = scale * kLog2E;
  float dk[kD / 8][4] = {};
  float dv[kD / 8][4] = {};

  for (int step0 = 0; step0 < p.t; step0 += kStepQueries) {
#pragma unroll 1
    for (int query = 0; query < kStepQueries; query += 16) {
      // Transposed scores and dp, [key][query], of sixteen queries. A lane has columns 2 (lane % 4) and the next of
      // eight.
      float s[2][4] = {};
      float dp[2][4] = {};
#pragma unroll
      for (int k = 0; k < kD / 16; ++k) {
        std::uint32_t rows[4];
        std::uint32_t columns[4];
        load_rows<kRowBytes>(rows, keys, key0, 2 * k);
        load_columns<kRowBytes>(columns, queries, step0 + query, 2 * k);
        multiply<T>(s[0], s[1], rows, columns);
        load_rows<kRowBytes>(rows, keys, key0, kD / 8 + 2 * k);
        load_columns<kRowBytes>(columns, queries, step0 + query, kD / 8 + 2 * k);
        multiply<T>(dp[0], dp[1], rows, columns);
      }
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        const float4 query_pair =
            *reinterpret_cast<const float4*>(statistics + step0 + query + 8 * eight + lane % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float probability =
              ptx::exp2_approximate(fmaf(s[eight][i], scale_log2, i % 2 ? -query_pair.z : -query_pair.x));
          s[eight][i] = probability;
          dp[eight][i] = probability * (dp[eight][i] - (i % 2 ? query_pair.w : query_pair.y));
        }
      }
      std::uint32_t probabilities[4];
      std::uint32_t ds[4];
      as_rows<T>(probabilities, s[0], s[1]);
      as_rows<T>(ds, dp[0], dp[1]);

      // Store ds, [key][query], for the warps that own these queries. Word i: from key 8 (i % 2), query 8 (i / 2) on.
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = key0 + 8 * (i % 2) + lane / 4;
        unsigned char* const run = ds_tile + swizzled<kDsRowBytes>(key, query / 8 + i / 2);
        *reinterpret_cast<std::uint32_t*>(run + lane % 4 * 4) = key < num_keys ? ds[i] : 0;
      }
#pragma unroll
      for (int run = 0; run < kD / 8; run += 2) {
        std::uint32_t summands[4];
        load_summands<kRowBytes>(summands, queries, step0 + query, run);
        multiply<T>(dk[run], dk[run + 1], ds, summands);
        load_summands<kRowBytes>(summands, queries, step0 + query, kD / 8 + run);
        multiply<T>(dv[run], dv[run + 1], probabilities, summands);
      }
    }
    __syncthreads();  // ds is complete, and the step's queries may be overwritten

    // dq of sixteen queries and a part of the channels, over the block's keys in order. ldmatrix transposes ds.
    const int query0 = warp / S::kParts * 16;
    const int run0 = warp % S::kParts * S::kPartRuns;
    float dq[S::kPartRuns][4] = {};
    for (int key = 0; key < num_keys; key += 16) {
      std::uint32_t rows[4];
      ptx::ldmatrix_x4_trans(
          rows, ds_tile + swizzled<kDsRowBytes>(key + lane % 8 + lane / 16 * 8, query0 / 8 + lane / 8 % 2));
#pragma unroll
      for (int run = 0; run < S::kPartRuns; run += 2) {
        std::uint32_t summands[4];
        load_summands<kRowBytes>(summands, keys, key, run0 + run);
        multiply<T>(dq[run], dq[run + 1], rows, summands);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = step0 + query0 + lane / 4 + 8 * half;
#pragma unroll
      for (int run = 0; run < S::kPartRuns; ++run) {
        auto* const quad = reinterpret_cast<float2*>(dq_quad<kD>(queries, query, (run0 + run) * 2 + lane % 4 / 2));
        quad[lane % 2] = {dq[run][2 * half], dq[run][2 * half + 1]};
      }
    }
    __syncthreads();  // all warps have read ds
  }
  ptx::cluster_arrive();

  const auto gradients = View::parts(dqkv, p, kD, image, head);
  const int out_row0 =
      ptx::opaque(block_key0 + key0) + lane / 4;  // or the output's addresses would take registers from the loop
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = out_row0 + 8 * half;
    store_row<T, kD>(gradients.k(row), dk, half, scale, row < p.t);
    store_row<T, kD>(gradients.v(row), dv, half, 1.0f, row < p.t);
  }

  // Sum dq over the cluster, for this block's share of the queries.
  ptx::cluster_wait();
  constexpr int kQuads = kD / 4;
  for (int i = threadIdx.x + rank * S::kThreads; i < p.t * kQuads; i += ranks * S::kThreads) {
    const float4 sum = sum_over_cluster(dq_quad<kD>(queries, i / kQuads, i % kQuads), ranks);
    *reinterpret_cast<Quad<T>*>(gradients.q(i / kQuads) + i % kQuads * 4) =
        pack_quad<T>({scale * sum.x, scale * sum.y, scale * sum.z, scale * sum.w});
  }
  // Keep this block's shared memory alive until the other blocks have read it.
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
}

template <class T, int kD, int kWarps, class View>
KernelPlan<Backward> keys_plan(const Problem& p, const char* name) {
  using S = ClusterKeysShape<kD, kWarps>;
  const auto bind = [p](const Backward::Tensors& t, void*) {
    const int ranks = S::ranks(p.t);
    return bind_launch(attention_backward_v05_kernel<T, kD, S, View>,
                       {.grid = dim3(p.heads * ranks, p.n),
                        .block = S::kThreads,
                        .dynamic_smem = S::smem_bytes(p.t),
                        .cluster = static_cast<unsigned>(ranks),
                        .overlaps_previous = true},
                       p.sizes(), ranks, scale_of(p), View::template inputs<T>(p, t), static_cast<const T*>(t.o), t.lse,
                       View::template d_o<T>(p, t), View::template gradients<T>(p, t));
  };
  return {.name = name, .bind = bind};
}

std::vector<KernelPlan<Backward>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Backward>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      const std::size_t chosen = p.t <= 64 ? 0 : 1;
      return with_view(p, [&]<class View>(View) {
        const auto both = [&]<int kD>() {
          return with_default<Backward>({keys_plan<T, kD, 4, View>(p, "64"), keys_plan<T, kD, 8, View>(p, "128")},
                                        chosen);
        };
        return p.d == 32 ? both.template operator()<32>() : both.template operator()<64>();
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
                                             .min_arch = 90})

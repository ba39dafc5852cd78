// Idea:   one wave: a block is one warpgroup with 128 keys, as two tiles of 64 in turn, so that three blocks an SM hold all of
//         the trainer's grid at once. Exponentials are issued behind dp, scores of the second tile in front of dv and dk of
//         the first. A block computes delta for its own 128 tokens alone, begins with them as queries, and takes the others'
//         from its peer of the cluster meanwhile.
// Parent: v06.
// Why:    v06 has two warpgroups a block and two blocks an SM: 384 blocks on 264 places are 1.45 waves, and in the second a
//         block has its SM to itself, every wait in sight. The same 384 blocks have 396 places here, as warpgroups that never
//         wait for each other. v06 also reads o and d_o of all tokens before its first step: with keys, values and the first
//         queries, 56 KB a block, 15 MB in the first wave, before anything is multiplied; 32 KB here.
// Needs:  sm_90a; 16 bits; at most 256 tokens; heads of 32 channels, since 64 would need 64 more sums a thread.

// Shared memory of a block of kKeys keys; all but lse and delta swizzled by the width of their rows:
//     keys         [kKeys][k]
//     values       [kKeys][v]
//     ds_tile      [kKeys][64 queries of the step]
//     lse, delta   [queries] fp32
//     queries      [step][q, then d_o][64 queries]; a step's room later has its dq [64][d] fp32
// Step of 64 queries, two tiles, in the order of the tensor cores' queue:
//     s' = k q', tile 0
//     dp' = v d_o', tile 0                       beside it the exponentials of tile 0; then p, ds in registers
//     s' tile 1; dv += p' d_o, dk += ds' q       beside them ds to ds_tile
//     dp' tile 1; dv += p' d_o, dk += ds' q
//     dq = ds k                                  over the block's keys
// After the last step each block adds both blocks' dq of its own tokens, over the cluster.

#include "dev/attention/heads.h"
#include "dev/attention/wgmma_backward.h"
#include "dev/attention/wgmma_rows.h"
#include "dev/ptx/approximate.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/ld_shared_cluster.h"
#include "dev/ptx/opaque.h"

namespace ladder::attention {
namespace {

constexpr int kD = 32;
constexpr int kRowBytes = 2 * kD;
constexpr int kStepQueries = 64;
constexpr int kMaxTokens = 256;
constexpr int kStepBytes = 2 * kStepQueries * kRowBytes;  // q, then d_o; later dq in fp32
constexpr int kDoBytes = kStepQueries * kRowBytes;        // from a step's q to its d_o
constexpr int kDsRowBytes = kStepQueries * 2;

template <int kTiles_>
struct OneWaveShape {
  static constexpr int kTiles = kTiles_;  // of 64 keys
  static constexpr int kKeys = kTiles * kGroupRows;
  static constexpr bool kSingleBlock = kTiles == 1;  // these are all tokens of an image
  static constexpr int kSteps = kSingleBlock ? 1 : kMaxTokens / kStepQueries;
  static constexpr int kBlocksPerSm = 3;
  static constexpr int kStatisticsBytes =
      ceil_div(kSteps * kStepQueries * 8, 1024) * 1024;  // so that tiles stay aligned

  static int ranks(int t) { return ceil_div(t, kKeys); }
  static std::size_t smem_bytes(int t) {
    return std::size_t{1} * kKeys * (2 * kRowBytes + kDsRowBytes) + kStatisticsBytes +
           ceil_div(t, kStepQueries) * kStepBytes;
  }
};

template <class T, class S, class View>
__global__ void __launch_bounds__(kGroupThreads, S::kBlocksPerSm)
    attention_backward_v08_kernel(Sizes p, int ranks, float scale, float scale_log2,
                                  typename View::template Qkv<const T> qkv, const T* o, const float* lse,
                                  typename View::template Heads<const T> d_o, typename View::template Qkv<T> dqkv) {
  constexpr int kSums = kStepQueries / 2;  // a thread's scores of a tile
  constexpr int kTerms = kStepQueries / kDepth;
  const int steps = S::kSingleBlock ? 1 : ceil_div(p.t, kStepQueries);
  LADDER_DYN_SMEM(smem);
  unsigned char* const keys = smem;                                                // [key][k]
  unsigned char* const values = keys + S::kKeys * kRowBytes;                       // [key][v]
  unsigned char* const ds_tile = values + S::kKeys * kRowBytes;                    // [key][a step's queries]
  float* const lses = reinterpret_cast<float*>(ds_tile + S::kKeys * kDsRowBytes);  // [query], times log2(e)
  float* const deltas = lses + S::kSteps * kStepQueries;                           // [query]
  unsigned char* const queries = ds_tile + S::kKeys * kDsRowBytes + S::kStatisticsBytes;

  const int rank = S::kSingleBlock ? 0 : blockIdx.x % ranks;
  const int head = S::kSingleBlock ? blockIdx.x : blockIdx.x / ranks;
  const int image = blockIdx.y;
  const int token0 = rank * S::kKeys;  // of the block's own tokens: its keys, its first queries, its part of dq
  const auto step_at = [&](int i) {
    const int step = token0 / kStepQueries + i;
    return step < steps ? step : step - steps;
  };
  const auto head_qkv = View::parts(qkv, p, kD, image, head);
  const HeadRows<const T> d_o_rows = View::rows(d_o, p, kD, image, head);
  const auto fetch_keys = [&](int tile) {
    const int bytes = tile * kGroupRows * kRowBytes;
    const int first = token0 + tile * kGroupRows;
    copy_rows<T, kD, kGroupRows, kGroupThreads>(keys + bytes, head_qkv.k(), head_qkv.k_pitch(), first, p.t);
    copy_rows<T, kD, kGroupRows, kGroupThreads>(values + bytes, head_qkv.v(), head_qkv.v_pitch(), first, p.t);
  };
  const auto fetch_queries = [&](int step) {
    unsigned char* const to = queries + step * kStepBytes;
    const int first = step * kStepQueries;
    copy_rows<T, kD, kStepQueries, kGroupThreads>(to, head_qkv.q(), head_qkv.q_pitch(), first, p.t);
    copy_rows<T, kD, kStepQueries, kGroupThreads>(to + kDoBytes, d_o_rows.begin(), d_o_rows.pitch, first, p.t);
  };

  // The first copy group has tile 0 and the first queries, the second tile 1, then each step's queries are one. Groups past
  // the last step are empty, so that the count of pending groups tells the step.
  ptx::grid_dependency_wait();
  fetch_keys(0);
  fetch_queries(step_at(0));
  ptx::cp_async_commit();
  {
    TokenStatistics<T, kD, S::kKeys> statistics;
    statistics.load(Legacy::rows(o, p, kD, image, head), d_o_rows, lse + (image * p.heads + head) * p.t, token0, p.t);
    if constexpr (!S::kSingleBlock) {
      fetch_keys(1);
      ptx::cp_async_commit();
    }
#pragma unroll 1
    for (int i = 1; i < S::kSteps; ++i) {
      if (i < steps) fetch_queries(step_at(i));
      ptx::cp_async_commit();
    }
    statistics.store(lses, deltas, token0);
  }
  if constexpr (!S::kSingleBlock) ptx::cluster_arrive();  // the peer may take the statistics
  ptx::grid_dependency_launch();
  ptx::cp_async_wait<S::kSingleBlock ? 0 : S::kSteps>();
  ptx::wgmma_fence_stores();
  __syncthreads();

  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x / 32 * 16 + lane / 4;  // this lane's first of a tile; the other is 8 on
  const std::uint64_t key_rows = rows_operand<kRowBytes>(keys);
  const std::uint64_t value_rows = rows_operand<kRowBytes>(values);
  const std::uint64_t ds_rows = rows_operand<kDsRowBytes>(ds_tile);
  const std::uint64_t query_rows = rows_operand<kRowBytes>(queries);
  const bool all_inside = token0 + S::kKeys <= p.t;
  float s[kSums];
  float dp[kSums];
  float dq[kD / 2];
  float dk[S::kTiles][kD / 2] = {};
  float dv[S::kTiles][kD / 2] = {};
  std::uint32_t probabilities[kTerms][4];
  std::uint32_t ds[kTerms][4];

  // Scores and dp of all keys of a tile, as rows. A lane's columns of eight are 2 (lane % 4) and the next.
  const auto issue_scores = [&](std::uint64_t q, int tile) {
    const std::uint64_t rows = ptx::wgmma_ahead(key_rows, tile * kGroupRows * kRowBytes);
#pragma unroll
    for (int i = 0; i < kD / kDepth; ++i) {
      ptx::wgmma_m64<T, kStepQueries>(s, ptx::wgmma_ahead(rows, i * kTermBytes), ptx::wgmma_ahead(q, i * kTermBytes),
                                      i > 0);
    }
    ptx::wgmma_commit();
  };
  const auto issue_dp = [&](std::uint64_t d_o_tile, int tile) {
    const std::uint64_t rows = ptx::wgmma_ahead(value_rows, tile * kGroupRows * kRowBytes);
#pragma unroll
    for (int i = 0; i < kD / kDepth; ++i) {
      ptx::wgmma_m64<T, kStepQueries>(dp, ptx::wgmma_ahead(rows, i * kTermBytes),
                                      ptx::wgmma_ahead(d_o_tile, i * kTermBytes), i > 0);
    }
    ptx::wgmma_commit();
  };

#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    const int step = step_at(i);
    const std::uint64_t q = ptx::wgmma_ahead(query_rows, step * kStepBytes);
    const std::uint64_t d_o_tile = ptx::wgmma_ahead(q, kDoBytes);
    const int pair = step * kStepQueries / 2 + lane % 4;
#pragma unroll
    for (int tile = 0; tile < S::kTiles; ++tile) {
      // This tile's scores, and the products that the tile in front had left to do.
      if (tile == 0) {
        ptx::wgmma_fence();
        issue_scores(q, 0);
      }
      ptx::wgmma_wait<0>();
      ptx::warpgroup_fence_operand(s);
      if (tile > 0) {
        ptx::warpgroup_fence_operand(dk[tile - 1]);
        ptx::warpgroup_fence_operand(dv[tile - 1]);
        ptx::warpgroup_fence_operand(probabilities);
        ptx::warpgroup_fence_operand(ds);
      }
      ptx::wgmma_fence();
      issue_dp(d_o_tile, tile);
      // Exponentials beside dp.
#pragma unroll
      for (int x = 0; x < kSums; ++x) {
        const float2 lse_pair = reinterpret_cast<const float2*>(lses)[pair + x / 4 * 4];
        s[x] = ptx::exp2_approximate(fmaf(s[x], scale_log2, x % 2 ? -lse_pair.y : -lse_pair.x));
      }
      ptx::wgmma_wait<0>();
      ptx::warpgroup_fence_operand(dp);
#pragma unroll
      for (int x = 0; x < kSums; ++x) {
        const float2 delta_pair = reinterpret_cast<const float2*>(deltas)[pair + x / 4 * 4];
        dp[x] = s[x] * (dp[x] - (x % 2 ? delta_pair.y : delta_pair.x));
      }
#pragma unroll
      for (int term = 0; term < kTerms; ++term) {
        as_operand<T>(probabilities[term], s, term);
        as_operand<T>(ds[term], dp, term);
      }
      if (!all_inside) {
#pragma unroll
        for (int x = 0; x < kTerms * 4; ++x) {
          const bool inside = token0 + tile * kGroupRows + row + 8 * (x % 2) < p.t;
          ds[x / 4][x % 4] = inside ? ds[x / 4][x % 4] : 0;
        }
      }

      if (tile == 0 && !S::kSingleBlock && i == 0) {
        ptx::cp_async_wait<S::kSteps - 1>();
        ptx::wgmma_fence_stores();
        __syncthreads();  // tile 1 is there
      }
      ptx::wgmma_fence();
      if (tile + 1 < S::kTiles) issue_scores(q, tile + 1);
#pragma unroll
      for (int term = 0; term < kTerms; ++term) {
        const int bytes = term * kDepth * kRowBytes;
        ptx::wgmma_m64_a_registers_b_mn<T, kD>(dv[tile], probabilities[term], ptx::wgmma_ahead(d_o_tile, bytes), true);
        ptx::wgmma_m64_a_registers_b_mn<T, kD>(dk[tile], ds[term], ptx::wgmma_ahead(q, bytes), true);
      }
      ptx::wgmma_commit();

      put_ds<kDsRowBytes>(ds_tile, tile * kGroupRows + row, ds);
    }
    if constexpr (!S::kSingleBlock) {
      if (i == 0) {
        ptx::cluster_wait();
        if (ranks > 1) {
          const int token = (1 - rank) * S::kKeys + threadIdx.x;
          lses[token] = ptx::ld_shared_cluster(ptx::mapa(lses + token, 1 - rank));
          deltas[token] = ptx::ld_shared_cluster(ptx::mapa(deltas + token, 1 - rank));
        }
      }
    }
    ptx::cp_async_commit();
    ptx::cp_async_wait<S::kSteps - 1>();
    ptx::wgmma_fence_stores();
    __syncthreads();  // ds is there, and the next queries

    // dq of the step, over the block's keys, behind dv and dk. ds lies transposed.
    ptx::wgmma_fence();
#pragma unroll
    for (int term = 0; term < S::kKeys / kDepth; ++term) {
      ptx::wgmma_m64_mn<T, kD>(dq, ptx::wgmma_ahead(ds_rows, term * kDepth * kDsRowBytes),
                               ptx::wgmma_ahead(key_rows, term * kDepth * kRowBytes), term > 0);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::warpgroup_fence_operand(dq);
    ptx::warpgroup_fence_operand(dk[S::kTiles - 1]);
    ptx::warpgroup_fence_operand(dv[S::kTiles - 1]);
    ptx::warpgroup_fence_operand(probabilities);
    ptx::warpgroup_fence_operand(ds);
    if constexpr (!S::kSingleBlock) {
      __syncthreads();  // nobody needs this step's ds, q and d_o any more
      put_dq<kD>(queries, step * kStepQueries, dq);
    }
  }

  const auto gradients = View::parts(dqkv, p, kD, image, head);
  if constexpr (S::kSingleBlock) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      store_sums<T, kD>(gradients.q(row + 8 * half), dq, half, scale, row + 8 * half < p.t);
    }
  } else {
    ptx::cluster_arrive();
  }
  const int out_row0 = ptx::opaque(token0 + row);  // or its addresses would take registers from the loop
#pragma unroll
  for (int tile = 0; tile < S::kTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = out_row0 + tile * kGroupRows + 8 * half;
      store_sums<T, kD>(gradients.k(key), dk[tile], half, scale, key < p.t);
      store_sums<T, kD>(gradients.v(key), dv[tile], half, 1.0f, key < p.t);
    }
  }

  // dq of the block's own tokens, eight channels at a time.
  if constexpr (!S::kSingleBlock) {
    ptx::cluster_wait();
    constexpr int kRuns = kD / 8;
#pragma unroll
    for (int i = 0; i < S::kKeys * kRuns / kGroupThreads; ++i) {
      const int token = token0 + (threadIdx.x + i * kGroupThreads) / kRuns;
      const int run = threadIdx.x % kRuns;
      if (token >= p.t) continue;
      const uint4 sum = dq_over_pair<T, kD>(queries, token, run, rank, ranks, scale);
      *reinterpret_cast<uint4*>(gradients.q(token) + run * 8) = sum;
    }
    // A block's memory is there for its peer until that has read it.
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
}

template <class T, int kTiles, class View>
KernelPlan<Backward> one_wave_plan(const Problem& p, const char* name) {
  using S = OneWaveShape<kTiles>;
  const auto bind = [p](const Backward::Tensors& t, void*) {
    const int ranks = S::ranks(p.t);
    return bind_launch(attention_backward_v08_kernel<T, S, View>,
                       {.grid = dim3(p.heads * ranks, p.n),
                        .block = kGroupThreads,
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
      return with_view(p, [&]<class View>(View) -> std::vector<KernelPlan<Backward>> {
        if (p.t <= kGroupRows) return {one_wave_plan<T, 1, View>(p, "64")};
        return {one_wave_plan<T, 2, View>(p, "128")};
      });
    } else {
      return {};
    }
  });
}

const char* supports(const Problem& p) {
  if (p.d != kD) return "a thread has registers for the gradients of 32 channels";
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

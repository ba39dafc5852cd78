// Idea:   v03's two passes with 32-bit operands, mma.sync in tf32: the terms and columns of each product are ordered
//         such that the fragments of both products come from the same rows without bank conflicts, and p and ds,
//         rounded, leave one product as the operand of the next.
// Parent: v03.
// Why:    the FMA pipe limits v02, the only other version in tf32. ldmatrix transposes elements of 16 bits alone: in
//         the usual order a fragment of the second products is words one by one, and p would cross lanes. Limiter left:
//         seven products where the formula has five, at half the rate of 16 bits.
// Needs:  tf32.
// Spills: 8 bytes at d = 64 with strided rows, so that three blocks share an SM.

#include <algorithm>

#include "dev/attention/heads.h"
#include "dev/attention/tf32_tile.h"
#include "dev/ptx/approximate.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/opaque.h"

namespace ladder::attention {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kStepTokens = 64;
template <int kD>
constexpr int kStageBytes = kStepTokens * 8 * kD;
template <int kD>
constexpr int kStages = 128 / kD;  // 64 KB: with 32 channels, up to 256 tokens are loaded whole

template <class View>
struct Head {  // one of one image, from its first token on
  typename View::template Parts<const float> qkv;
  HeadRows<const float> o;
  HeadRows<const float> d_o;
  const float* lse;
  typename View::template Parts<float> dqkv;
  int tokens;
};

// lse * log2(e) and delta of a query, computed by four lanes. Out-of-range queries get lse = +inf, hence p = 0.
struct Statistics {
  float lse;
  float delta;
};
template <int kD, class View>
__device__ __forceinline__ Statistics statistics_of(const Head<View>& head, int query) {
  const int row = min(query, head.tokens - 1);  // no branch, so that loads of several queries are in flight
  const float lse = head.lse[row] * kLog2E;
  float delta = 0;
#pragma unroll
  for (int x = 0; x < kD; x += 16) {
    const float4 o = *reinterpret_cast<const float4*>(head.o.row(row) + x + threadIdx.x % 4 * 4);
    const float4 d_o = *reinterpret_cast<const float4*>(head.d_o.row(row) + x + threadIdx.x % 4 * 4);
    delta += o.x * d_o.x + o.y * d_o.y + o.z * d_o.z + o.w * d_o.w;
  }
  delta = quad_sum(delta);
  return query < head.tokens ? Statistics{lse, delta} : Statistics{INFINITY, 0.0f};
}

// Gradients of the block's tokens. kKeys: they are keys, `block_first` and `block_second` are k and v, and a tile's
// `first` and `second` are q and d_o. Otherwise they are queries, and it is the other way round.
// s = block_first . first, dp = block_second . second.
template <int kD, int kTiles, bool kKeys, class View>
__device__ __forceinline__ void work(const Head<View>& head, float scale, int block_token0) {
  constexpr int kRowBytes = 8 * kD;  // of a token: kD channels each of `first` and `second`
  constexpr int kNumStages = kStages<kD>;
  LADDER_DYN_SMEM(smem);  // stages times [token][first second], swizzled; then the queries' statistics, if kKeys
  const int num_steps = ceil_div(head.tokens, kStepTokens);
  const auto fetch = [&](int step) {
    unsigned char* const tile = smem + step % kNumStages * kStageBytes<kD>;
    if constexpr (kKeys) {
      copy_pairs<float, kD, kStepTokens, kThreads>(tile, head.qkv.q(), head.qkv.q_pitch(), head.d_o.begin(),
                                                   head.d_o.pitch, step * kStepTokens, head.tokens);
    } else {
      copy_pairs<float, kD, kStepTokens, kThreads>(tile, head.qkv.k(), head.qkv.k_pitch(), head.qkv.v(),
                                                   head.qkv.v_pitch(), step * kStepTokens, head.tokens);
    }
  };
  ptx::grid_dependency_wait();
#pragma unroll 1
  for (int step = 0; step < kNumStages; ++step) {
    if (step < num_steps) fetch(step);
    ptx::cp_async_commit();  // one group a step, empty or not, so that wait<N> counts steps
  }

  // This lane's tokens are row0 + 16 tile and row0 + 16 tile + 8.
  const auto first_row = [](int from) { return from + threadIdx.x / 32 * kTiles * 16 + threadIdx.x % 32 / 4; };
  const int row0 = first_row(block_token0);
  std::uint32_t block_first[kTiles][kD / 8][4];
  std::uint32_t block_second[kTiles][kD / 8][4];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const float* const first = kKeys ? head.qkv.k() : head.qkv.q();
    const float* const second = kKeys ? head.qkv.v() : head.d_o.begin();
    const int first_pitch = kKeys ? head.qkv.k_pitch() : head.qkv.q_pitch();
    const int second_pitch = kKeys ? head.qkv.v_pitch() : head.d_o.pitch;
    load_tf32_rows<kD>(block_first[tile], first, first_pitch, row0 + 16 * tile, head.tokens);
    load_tf32_rows<kD>(block_second[tile], second, second_pitch, row0 + 16 * tile, head.tokens);
  }

  // Statistics of all queries in shared memory (kKeys), or of the block's own in registers.
  auto* const queries = reinterpret_cast<Statistics*>(smem + min(num_steps, kNumStages) * kStageBytes<kD>);
  Statistics row_statistics[kTiles][2];
  if constexpr (kKeys) {
#pragma unroll 4
    for (int first = 0; first < num_steps * kStepTokens; first += kThreads / 4) {
      const int i = first + threadIdx.x / 4;
      const Statistics query = statistics_of<kD>(head, i);
      if (threadIdx.x % 4 == 0) queries[i] = query;
    }
  } else {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        row_statistics[tile][half] = statistics_of<kD>(head, row0 + 16 * tile + 8 * half);
    }
  }

  const float scale_log2 = scale * kLog2E;
  float from_ds[kTiles][kD / 8][4] = {};             // dk or dq
  float from_p[kKeys ? kTiles : 1][kD / 8][4] = {};  // dv

  for (int step = 0; step < num_steps; ++step) {
    ptx::cp_async_wait<kNumStages - 1>();
    __syncthreads();
    if (step == max(num_steps - kNumStages, 0)) ptx::grid_dependency_launch();
    const int tokens_left = head.tokens - step * kStepTokens;

#pragma unroll 1
    for (int step_token = 0; step_token < min(kStepTokens, tokens_left); step_token += 8) {
      const int rows = step % kNumStages * kStageBytes<kD> + step_token * kRowBytes;
      float s[kTiles][4] = {};
      float dp[kTiles][4] = {};
      const int score_at = score_runs<kRowBytes>(rows);
      add_scores<kD>(s, block_first, smem, score_at);
      add_scores<kD>(dp, block_second, smem + kRowBytes / 2, score_at);

      // p and ds. Element i is the lane's own token i / 2 and the tile's token t + 4 (i % 2).
      std::uint32_t ds[kTiles][4];
      std::uint32_t probabilities[kTiles][4];
      const int first = step_token + threadIdx.x % 4;
      const Statistics* const query = queries + step * kStepTokens + first;
      const Statistics column_statistics[2] = {kKeys ? query[0] : Statistics{}, kKeys ? query[4] : Statistics{}};
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const auto [lse, delta] = kKeys ? column_statistics[i % 2] : row_statistics[tile][i / 2];
          float probability = ptx::exp2_approximate(fmaf(s[tile][i], scale_log2, -lse));
          // Out-of-range keys are rows of zeros: p must be finite there.
          if (!kKeys && first + i % 2 * 4 >= tokens_left) probability = 0;
          s[tile][i] = probability;
          dp[tile][i] = probability * (dp[tile][i] - delta);
        }
        as_tf32_rows(ds[tile], dp[tile]);
        if constexpr (kKeys) as_tf32_rows(probabilities[tile], s[tile]);
      }
      const int weighted_at = weighted_words<kRowBytes>(rows);
      add_weighted<kRowBytes, kD>(from_ds, ds, smem, weighted_at);
      if constexpr (kKeys) add_weighted<kRowBytes, kD>(from_p, probabilities, smem + kRowBytes / 2, weighted_at);
    }

    if (step + kNumStages < num_steps) {
      __syncthreads();  // all warps have left the stage
      fetch(step + kNumStages);
    }
    ptx::cp_async_commit();
  }

  const int out_row0 =
      first_row(ptx::opaque(block_token0));  // or the output's addresses would take registers from the loop
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = out_row0 + 16 * tile + 8 * half;
      const bool inside = row < head.tokens;
      store_tf32_row<kD>(kKeys ? head.dqkv.k(row) : head.dqkv.q(row), from_ds[tile], half, scale, inside);
      if constexpr (kKeys) store_tf32_row<kD>(head.dqkv.v(row), from_p[tile], half, 1.0f, inside);
    }
  }
}

template <int kD, int kTiles, class View>
__global__ void __launch_bounds__(kThreads, kTiles == 1 && kD == 32 ? 4 : 3)
    attention_backward_v07_kernel(Sizes p, float scale, typename View::template Qkv<const float> qkv, const float* o,
                                  const float* lse, typename View::template Heads<const float> d_o,
                                  typename View::template Qkv<float> dqkv) {
  constexpr int kBlockTokens = kWarps * kTiles * 16;
  const int index = blockIdx.y;
  const int image = blockIdx.z;
  const Head<View> head = {.qkv = View::parts(qkv, p, kD, image, index).from_begin(),
                           .o = Legacy::rows(o, p, kD, image, index).from_begin(),
                           .d_o = View::rows(d_o, p, kD, image, index).from_begin(),
                           .lse = lse + (image * p.heads + index) * p.t,
                           .dqkv = View::parts(dqkv, p, kD, image, index).from_begin(),
                           .tokens = p.t};
  // Blocks of keys come first in an image's head: they do more work than blocks of queries.
  const int tiles = ceil_div(p.t, kBlockTokens);
  const int tile = blockIdx.x;
  if (tile < tiles) {
    work<kD, kTiles, true>(head, scale, tile * kBlockTokens);
  } else {
    work<kD, kTiles, false>(head, scale, (tile - tiles) * kBlockTokens);
  }
}

template <int kD, int kTiles, class View>
KernelPlan<Backward> tile_plan(const Problem& p, const char* name) {
  const auto bind = [p](const Backward::Tensors& t, void*) {
    const int steps = ceil_div(p.t, kStepTokens);
    return bind_launch(
        attention_backward_v07_kernel<kD, kTiles, View>,
        {.grid = dim3(2 * ceil_div(p.t, kWarps * kTiles * 16), p.heads, p.n),
         .block = kThreads,
         .dynamic_smem = std::min(kStages<kD>, steps) * kStageBytes<kD> + steps * kStepTokens * sizeof(Statistics),
         .overlaps_previous = true},
        p.sizes(), scale_of(p), View::template inputs<float>(p, t), static_cast<const float*>(t.o), t.lse,
        View::template d_o<float>(p, t), View::template gradients<float>(p, t));
  };
  return {.name = name, .bind = bind};
}

// At 32 tokens a warp a token needs half the fragment loads; the registers suffice at d = 32.
std::vector<KernelPlan<Backward>> plans(const Problem& p) {
  return with_view(p, [&]<class View>(View) -> std::vector<KernelPlan<Backward>> {
    if (p.d == 64) return {tile_plan<64, 1, View>(p, "16")};
    constexpr int kEnoughBlocks = 264;  // two an SM
    const std::int64_t blocks = std::int64_t{p.n} * p.heads * 2 * ceil_div(p.t, 128);
    return with_default<Backward>({tile_plan<32, 1, View>(p, "16"), tile_plan<32, 2, View>(p, "32")},
                                  p.t > 64 && blocks >= kEnoughBlocks ? 1 : 0);
  });
}

}  // namespace
}  // namespace ladder::attention

LADDER_VERSION(ladder::attention::Backward, {.plans = ladder::attention::plans,
                                             .plan_names = {"16", "32"},
                                             .dtypes = {ladder::Dtype::tf32},
                                             .supports = ladder::attention::grid_and_rows,
                                             .min_arch = 80})

// Idea:   v02's two passes on mma.sync: p and ds leave one product in the layout in which the next one takes them, and
//         never see shared memory. For keys the products are transposed, s^T = k q^T, so that the next product again
//         sums over the columns of a warp's own rows.
// Parent: v02.
// Why:    the FMA pipe limits v02. A warp keeps its 16 or 32 tokens and their sums in registers and walks over the
//         others, 16 at a time; queries walk over keys for dq, keys over queries for dk and dv. Limiter left: seven
//         products where the formula has five, each exponential made twice.
// Needs:  16 bits.
// Spills: 8 bytes of addresses with 32 tokens a warp and strided rows, so that three blocks share an SM.

#include <algorithm>

#include "dev/attention/heads.h"
#include "dev/attention/mma_rows.h"
#include "dev/attention/mma_tile.h"
#include "dev/ptx/approximate.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/opaque.h"

namespace ladder::attention {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kStepTokens = 64;
constexpr int kStages = 4;  // of kStepTokens: images of up to 256 tokens are loaded whole

template <int kD>
constexpr int kStageBytes = kStepTokens * 4 * kD;

template <class T, class View>
struct Head {  // one of one image, from its first token on
  typename View::template Parts<const T> qkv;
  HeadRows<const T> o;
  HeadRows<const T> d_o;
  const float* lse;
  typename View::template Parts<T> dqkv;
  int tokens;
};

// Gradients of the block's tokens. kKeys: they are keys, `block_first` and `block_second` are k and v, and a tile's
// `first` and `second` are q and d_o. Otherwise they are queries, and it is the other way round.
// s = block_first . first, dp = block_second . second.
template <class T, int kD, int kTiles, bool kKeys, class View>
__device__ __forceinline__ void work(const Head<T, View>& head, float scale, int block_token0) {
  constexpr int kRowBytes = 4 * kD;
  LADDER_DYN_SMEM(smem);  // stages times [token][first second], swizzled; then lse and delta of the queries, if kKeys
  const int num_steps = ceil_div(head.tokens, kStepTokens);
  const auto fetch = [&](int step) {
    unsigned char* const tile = smem + step % kStages * kStageBytes<kD>;
    if constexpr (kKeys) {
      copy_pairs<T, kD, kStepTokens, kThreads>(tile, head.qkv.q(), head.qkv.q_pitch(), head.d_o.begin(), head.d_o.pitch,
                                               step * kStepTokens, head.tokens);
    } else {
      copy_pairs<T, kD, kStepTokens, kThreads>(tile, head.qkv.k(), head.qkv.k_pitch(), head.qkv.v(), head.qkv.v_pitch(),
                                               step * kStepTokens, head.tokens);
    }
  };
  ptx::grid_dependency_wait();
#pragma unroll 1
  for (int step = 0; step < kStages; ++step) {
    if (step < num_steps) fetch(step);
    ptx::cp_async_commit();  // one group a step, empty or not, so that wait<N> counts steps
  }

  // This lane's tokens are row0 + 16 tile and row0 + 16 tile + 8.
  const auto first_row = [](int from) { return from + threadIdx.x / 32 * kTiles * 16 + threadIdx.x % 32 / 4; };
  const int row0 = first_row(block_token0);
  std::uint32_t block_first[kTiles][kD / 16][4];
  std::uint32_t block_second[kTiles][kD / 16][4];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const T* const first = kKeys ? head.qkv.k() : head.qkv.q();
    const T* const second = kKeys ? head.qkv.v() : head.d_o.begin();
    const int first_pitch = kKeys ? head.qkv.k_pitch() : head.qkv.q_pitch();
    const int second_pitch = kKeys ? head.qkv.v_pitch() : head.d_o.pitch;
    load_rows<T, kD>(block_first[tile], first, first_pitch, row0 + 16 * tile, head.tokens);
    load_rows<T, kD>(block_second[tile], second, second_pitch, row0 + 16 * tile, head.tokens);
  }

  // lse * log2(e) and delta of the queries: of all in shared memory (kKeys), or of the block's own in registers.
  // Out-of-range queries get lse = +inf, hence p = 0.
  float2* const queries = reinterpret_cast<float2*>(smem + min(num_steps, kStages) * kStageBytes<kD>);
  float row_lse[kTiles][2];
  float row_delta[kTiles][2];
  const auto statistics = [&](int i, float& lse, float& delta) {
    lse = i < head.tokens ? head.lse[i] * kLog2E : INFINITY;
    delta = i < head.tokens ? delta_of<T, kD>(head.o.row(i), head.d_o.row(i)) : 0.0f;
  };
  if constexpr (kKeys) {
    for (int i = threadIdx.x; i < num_steps * kStepTokens; i += kThreads) statistics(i, queries[i].x, queries[i].y);
  } else {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        statistics(row0 + 16 * tile + 8 * half, row_lse[tile][half], row_delta[tile][half]);
      }
    }
  }

  const float scale_log2 = scale * kLog2E;
  float from_ds[kTiles][kD / 8][4] = {};             // dk or dq
  float from_p[kKeys ? kTiles : 1][kD / 8][4] = {};  // dv

  for (int step = 0; step < num_steps; ++step) {
    ptx::cp_async_wait<kStages - 1>();
    __syncthreads();
    const unsigned char* const pairs = smem + step % kStages * kStageBytes<kD>;
    const int tokens_left = head.tokens - step * kStepTokens;

#pragma unroll 1
    for (int step_token = 0; step_token < min(kStepTokens, tokens_left); step_token += 16) {
      float s[kTiles][2][4] = {};
      float dp[kTiles][2][4] = {};
#pragma unroll
      for (int k = 0; k < kD / 16; ++k) {
        std::uint32_t first[4];
        std::uint32_t second[4];
        load_columns<kRowBytes>(first, pairs, step_token, 2 * k);
        load_columns<kRowBytes>(second, pairs, step_token, kD / 8 + 2 * k);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          multiply<T>(s[tile][0], s[tile][1], block_first[tile][k], first);
          multiply<T>(dp[tile][0], dp[tile][1], block_second[tile][k], second);
        }
      }

      // s becomes p, dp becomes ds. Element i of eight columns is row g + 8 (i / 2), column 2t + i % 2.
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        const int column = step_token + 8 * eight + threadIdx.x % 4 * 2;
        float column_lse[2];
        float column_delta[2];
        if constexpr (kKeys) {
          const float4 query_pair = *reinterpret_cast<const float4*>(queries + step * kStepTokens + column);
          column_lse[0] = query_pair.x, column_delta[0] = query_pair.y;
          column_lse[1] = query_pair.z, column_delta[1] = query_pair.w;
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float lse = kKeys ? column_lse[i % 2] : row_lse[tile][i / 2];
            const float delta = kKeys ? column_delta[i % 2] : row_delta[tile][i / 2];
            float probability = ptx::exp2_approximate(fmaf(s[tile][eight][i], scale_log2, -lse));
            // Out-of-range keys are rows of zeros: p must be finite there.
            if (!kKeys && column + i % 2 >= tokens_left) probability = 0;
            s[tile][eight][i] = probability;
            dp[tile][eight][i] = probability * (dp[tile][eight][i] - delta);
          }
        }
      }

      std::uint32_t ds[kTiles][4];
      std::uint32_t probabilities[kTiles][4];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        as_rows<T>(ds[tile], dp[tile][0], dp[tile][1]);
        if constexpr (kKeys) as_rows<T>(probabilities[tile], s[tile][0], s[tile][1]);
      }
#pragma unroll
      for (int run = 0; run < kD / 8; run += 2) {
        std::uint32_t first[4];
        load_summands<kRowBytes>(first, pairs, step_token, run);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          multiply<T>(from_ds[tile][run], from_ds[tile][run + 1], ds[tile], first);
        }
        if constexpr (kKeys) {
          std::uint32_t second[4];
          load_summands<kRowBytes>(second, pairs, step_token, kD / 8 + run);
#pragma unroll
          for (int tile = 0; tile < kTiles; ++tile) {
            multiply<T>(from_p[tile][run], from_p[tile][run + 1], probabilities[tile], second);
          }
        }
      }
    }

    if (step + kStages < num_steps) {
      __syncthreads();  // all warps have left the stage
      fetch(step + kStages);
    }
    ptx::cp_async_commit();
  }

  ptx::grid_dependency_launch();
  const int out_row0 =
      first_row(ptx::opaque(block_token0));  // or the output's addresses would take registers from the loop
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = out_row0 + 16 * tile + 8 * half;
      store_row<T, kD>(kKeys ? head.dqkv.k(row) : head.dqkv.q(row), from_ds[tile], half, scale, row < head.tokens);
      if constexpr (kKeys) store_row<T, kD>(head.dqkv.v(row), from_p[tile], half, 1.0f, row < head.tokens);
    }
  }
}

template <class T, int kD, int kTiles, class View>
__global__ void __launch_bounds__(kThreads, kTiles == 1 && kD == 32 ? 4 : 3)
    attention_backward_v03_kernel(Sizes p, float scale, typename View::template Qkv<const T> qkv, const T* o,
                                  const float* lse, typename View::template Heads<const T> d_o,
                                  typename View::template Qkv<T> dqkv) {
  constexpr int kBlockTokens = kWarps * kTiles * 16;
  const int index = blockIdx.y;
  const int image = blockIdx.z;
  const Head<T, View> head = {.qkv = View::parts(qkv, p, kD, image, index).from_begin(),
                              .o = Legacy::rows(o, p, kD, image, index).from_begin(),
                              .d_o = View::rows(d_o, p, kD, image, index).from_begin(),
                              .lse = lse + (image * p.heads + index) * p.t,
                              .dqkv = View::parts(dqkv, p, kD, image, index).from_begin(),
                              .tokens = p.t};
  // Blocks of keys come first in an image's head: they do more work than blocks of queries.
  const int tiles = ceil_div(p.t, kBlockTokens);
  const int tile = blockIdx.x;
  if (tile < tiles) {
    work<T, kD, kTiles, true>(head, scale, tile * kBlockTokens);
  } else {
    work<T, kD, kTiles, false>(head, scale, (tile - tiles) * kBlockTokens);
  }
}

template <class T, int kD, int kTiles, class View>
KernelPlan<Backward> tile_plan(const Problem& p, const char* name) {
  const auto bind = [p](const Backward::Tensors& t, void*) {
    const int steps = ceil_div(p.t, kStepTokens);
    return bind_launch(
        attention_backward_v03_kernel<T, kD, kTiles, View>,
        {.grid = dim3(2 * ceil_div(p.t, kWarps * kTiles * 16), p.heads, p.n),
         .block = kThreads,
         .dynamic_smem = std::min(kStages, steps) * kStageBytes<kD> + steps * kStepTokens * sizeof(float2),
         .overlaps_previous = true},
        p.sizes(), scale_of(p), View::template inputs<T>(p, t), static_cast<const T*>(t.o), t.lse,
        View::template d_o<T>(p, t), View::template gradients<T>(p, t));
  };
  return {.name = name, .bind = bind};
}

// At 32 tokens a warp a token needs half the fragment loads; the registers suffice at d = 32.
std::vector<KernelPlan<Backward>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Backward>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      return with_view(p, [&]<class View>(View) -> std::vector<KernelPlan<Backward>> {
        if (p.d == 64) return {tile_plan<T, 64, 1, View>(p, "16")};
        constexpr int kEnoughBlocks = 264;  // two an SM
        const std::int64_t blocks = std::int64_t{p.n} * p.heads * 2 * ceil_div(p.t, 128);
        return with_default<Backward>({tile_plan<T, 32, 1, View>(p, "16"), tile_plan<T, 32, 2, View>(p, "32")},
                                      p.t > 64 && blocks >= kEnoughBlocks ? 1 : 0);
      });
    }
    return {};
  });
}

}  // namespace
}  // namespace ladder::attention

LADDER_VERSION(ladder::attention::Backward, {.plans = ladder::attention::plans,
                                             .plan_names = {"16", "32"},
                                             .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                             .supports = ladder::attention::grid_and_rows,
                                             .min_arch = 80})

// Idea:   tiles in shared memory, p made again from lse tile by tile. Blocks that own queries sum dq over the keys, blocks
//         that own keys sum dk and dv over the queries: every output is one block's, no sum crosses blocks.
// Parent: v01.
// Why:    v01 fetches all tokens for every token. Here a tile of 32 serves 64 tokens. Scores and dp are made twice, seven
//         products for five, which costs less than adding up parts of dq from all blocks of keys in a fixed order. Limiter
//         left: the FMA pipe.
// Needs:  nothing.

#include "dev/attention/fp32_tile.h"

namespace ladder::attention {
namespace {

constexpr int kBlockTokens = 64;  // tokens of a block
constexpr int kStepTokens = 32;   // tokens of a step
constexpr int kRows = 4;          // thread (ty, tx) has tokens 4 ty + r of the block and tx + 16 c of the step
constexpr int kColumns = kStepTokens / 16;
constexpr int kPitchP = kStepTokens + 4;
static_assert(kTileThreads == kBlockTokens / kRows * 16);

template <int kD>
constexpr std::size_t kSmemBytes = (2 * (kBlockTokens + kStepTokens) * kTilePitch<kD> + 2 * kBlockTokens * kPitchP +
                                    2 * (kBlockTokens + kStepTokens)) *
                                   sizeof(float);

// to[row][x] += row `row` of factors, kStepTokens of them, times channel x of the others' rows.
template <int kD, int kChannels>
__device__ __forceinline__ void add_product(float (&to)[kRows][kChannels], const float* factors, const float* others) {
  constexpr int kPitch = kTilePitch<kD>;
  for (int j = 0; j < kStepTokens; j += 4) {
    float4 f[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) f[r] = *reinterpret_cast<const float4*>(factors + r * kPitchP + j);
#pragma unroll
    for (int x = 0; x < kChannels; ++x) {
      const float* const values = others + j * kPitch + x;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        to[r][x] +=
            f[r].x * values[0] + f[r].y * values[kPitch] + f[r].z * values[2 * kPitch] + f[r].w * values[3 * kPitch];
      }
    }
  }
}

// kKeys: whether the block's own tokens are keys. Rows of its tiles are then k and v, and the others' q and d_o; otherwise
// the other way round. s = first.first', dp = second.second'.
template <class T, int kD, bool kKeys>
__device__ __forceinline__ void work(const Sizes& p, float scale, const T* qkv, const T* o, const float* lse,
                                     const T* d_o, T* dqkv, int block_token0) {
  constexpr int kPitch = kTilePitch<kD>;
  constexpr int kChannels = kD / 16;
  LADDER_DYN_SMEM(smem);
  float* const block_first = reinterpret_cast<float*>(smem);
  float* const block_second = block_first + kBlockTokens * kPitch;
  float* const first = block_second + kBlockTokens * kPitch;
  float* const second = first + kStepTokens * kPitch;
  float* const ps = second + kStepTokens * kPitch;  // [block_token][step_token]
  float* const ds = ps + kBlockTokens * kPitchP;    // [block_token][step_token]
  float* const lses = ds + kBlockTokens * kPitchP;  // of the queries, the block's or the step's
  float* const deltas = lses + kBlockTokens + kStepTokens;

  const int head = blockIdx.y;
  const int image = blockIdx.z;
  const int pitch = 3 * p.heads * kD;
  const int o_pitch = p.heads * kD;
  const T* const q = qkv + image * p.t * pitch + head * 3 * kD;
  const T* const o_head = o + image * p.t * o_pitch + head * kD;
  const T* const d_o_head = d_o + image * p.t * o_pitch + head * kD;
  lse += (image * p.heads + head) * p.t;
  const int ty = threadIdx.x / 16;
  const int tx = threadIdx.x % 16;

  const auto load_queries = [&]<int kTokens>(float* qs, float* d_os, int i0) {
    load_tile<T, kD, kTokens>(qs, q, pitch, i0, p.t);
    load_tile<T, kD, kTokens>(d_os, d_o_head, o_pitch, i0, p.t);
    __syncthreads();
    for (int r = threadIdx.x; r < kTokens; r += kTileThreads) {
      float delta = 0;
      if (i0 + r < p.t) {
        const T* const row = o_head + (i0 + r) * o_pitch;
        for (int x = 0; x < kD; ++x) delta += d_os[r * kPitch + x] * to_float(row[x]);
      }
      deltas[r] = delta;
      lses[r] = i0 + r < p.t ? lse[i0 + r] : INFINITY;  // p is 0
    }
  };
  const auto load_keys = [&]<int kTokens>(float* ks, float* vs, int j0) {
    load_tile<T, kD, kTokens>(ks, q + kD, pitch, j0, p.t);
    load_tile<T, kD, kTokens>(vs, q + 2 * kD, pitch, j0, p.t);
  };

  if constexpr (kKeys) {
    load_keys.template operator()<kBlockTokens>(block_first, block_second, block_token0);
  } else {
    load_queries.template operator()<kBlockTokens>(block_first, block_second, block_token0);
  }
  float from_ds[kRows][kChannels] = {};  // dk or dq
  float from_p[kRows][kChannels] = {};   // dv

  for (int step_token0 = 0; step_token0 < p.t; step_token0 += kStepTokens) {
    __syncthreads();  // all have left the last tile
    if constexpr (kKeys) {
      load_queries.template operator()<kStepTokens>(first, second, step_token0);
    } else {
      load_keys.template operator()<kStepTokens>(first, second, step_token0);
    }
    __syncthreads();

    float s[kRows][kColumns];
    float dp[kRows][kColumns];
    tile_product<kD, kRows, kColumns>(s, block_first + ty * kRows * kPitch, kPitch, first + tx * kPitch, 16 * kPitch);
    tile_product<kD, kRows, kColumns>(dp, block_second + ty * kRows * kPitch, kPitch, second + tx * kPitch,
                                      16 * kPitch);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int block_token = ty * kRows + r;
        const int step_token = tx + 16 * c;
        const int query = kKeys ? step_token : block_token;
        const bool inside = step_token0 + step_token < p.t && block_token0 + block_token < p.t;
        const float probability = inside ? expf(scale * s[r][c] - lses[query]) : 0.0f;
        ps[block_token * kPitchP + step_token] = probability;
        ds[block_token * kPitchP + step_token] = probability * (dp[r][c] - deltas[query]);
      }
    }
    __syncwarp();  // rows of p and ds stay within a half-warp

    add_product<kD>(from_ds, ds + ty * kRows * kPitchP, first + tx * kChannels);
    if constexpr (kKeys) add_product<kD>(from_p, ps + ty * kRows * kPitchP, second + tx * kChannels);
  }

#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int token = block_token0 + ty * kRows + r;
    if (token >= p.t) continue;
    T* const out = dqkv + (image * p.t + token) * pitch + head * 3 * kD + tx * kChannels;
#pragma unroll
    for (int x = 0; x < kChannels; ++x) {
      out[(kKeys ? kD : 0) + x] = from_float<T>(scale * from_ds[r][x]);
      if constexpr (kKeys) out[2 * kD + x] = from_float<T>(from_p[r][x]);
    }
  }
}

template <class T, int kD>
__global__ void __launch_bounds__(kTileThreads)
    attention_backward_v02_kernel(Sizes p, float scale, const T* qkv, const T* o, const float* lse, const T* d_o,
                                  T* dqkv) {
  // Blocks of keys, which have more to do, come first.
  const int tiles = ceil_div(p.t, kBlockTokens);
  const int tile = blockIdx.x;
  if (tile < tiles) {
    work<T, kD, true>(p, scale, qkv, o, lse, d_o, dqkv, tile * kBlockTokens);
  } else {
    work<T, kD, false>(p, scale, qkv, o, lse, d_o, dqkv, (tile - tiles) * kBlockTokens);
  }
}

void launch(const Problem& p, const Backward::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    const dim3 grid(2 * ceil_div(p.t, kBlockTokens), p.heads, p.n);
    const auto go = [&](auto kernel, std::size_t smem_bytes) {
      ladder::launch(kernel, {.grid = grid, .block = kTileThreads, .dynamic_smem = smem_bytes}, stream, p.sizes(),
                     scale_of(p), static_cast<const T*>(t.qkv), static_cast<const T*>(t.o), t.lse,
                     static_cast<const T*>(t.d_o), static_cast<T*>(t.dqkv));
    };
    p.d == 32 ? go(attention_backward_v02_kernel<T, 32>, kSmemBytes<32>)
              : go(attention_backward_v02_kernel<T, 64>, kSmemBytes<64>);
  });
}

}  // namespace
}  // namespace ladder::attention

LADDER_VERSION(ladder::attention::Backward,
               {.launch = ladder::attention::launch,
                .dtypes = {ladder::Dtype::f32, ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                .supports = ladder::attention::not_legacy})

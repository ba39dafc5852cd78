// Parts of a backward pass on wgmma: statistics of a block's own tokens, a tile of ds as it leaves the registers, and dq
// [query][kD] fp32 in shared memory, in place of q and d_o of the same queries.
#pragma once

#include "dev/attention/heads.h"
#include "dev/attention/wgmma_rows.h"
#include "dev/ptx/ld_shared_cluster.h"

namespace ladder::attention {

// lse log2(e) and delta of kTokens queries, by one warpgroup, kRuns lanes a query. Out-of-range queries get lse = +inf,
// hence p = 0.
template <class T, int kD, int kTokens>
class TokenStatistics {
 public:
  // `lse` points to token 0 of the head.
  __device__ __forceinline__ void load(const HeadRows<const T>& o, const HeadRows<const T>& d_o, const float* lse,
                                       int token0, int t) {
#pragma unroll
    for (int i = 0; i < kTokensPerThread; ++i) {
      const int token = token0 + token_of(i);
      const int run = threadIdx.x % kRuns * kVector<T>;
      o_[i] = d_o_[i] = {};
      lse_[i] = INFINITY;
      if (token < t) {
        o_[i] = *reinterpret_cast<const uint4*>(o.row(token) + run);
        d_o_[i] = *reinterpret_cast<const uint4*>(d_o.row(token) + run);
        lse_[i] = lse[token];
      }
    }
  }

  __device__ __forceinline__ void store(float* lses, float* deltas, int token0) const {
#pragma unroll
    for (int i = 0; i < kTokensPerThread; ++i) {
      float a[kVector<T>];
      float b[kVector<T>];
      unpack<T>(o_[i], a);
      unpack<T>(d_o_[i], b);
      float delta = 0;
#pragma unroll
      for (int x = 0; x < kVector<T>; ++x) delta += a[x] * b[x];
      delta = quad_sum(delta);
      if (threadIdx.x % kRuns == 0) {
        lses[token0 + token_of(i)] = lse_[i] * kLog2E;
        deltas[token0 + token_of(i)] = delta;
      }
    }
  }

 private:
  static constexpr int kRuns = 2 * kD / 16;
  static_assert(kRuns == 4, "quad_sum() adds what four lanes have");
  static constexpr int kTokensPerThread = kTokens * kRuns / kGroupThreads;

  __device__ __forceinline__ static int token_of(int i) { return (threadIdx.x + i * kGroupThreads) / kRuns; }

  uint4 o_[kTokensPerThread], d_o_[kTokensPerThread];
  float lse_[kTokensPerThread];
};

// Store a tile of ds, packed as A operands of 16 queries each, as rows of keys of kRowBytes. `row` is the lane's first key;
// word w of an operand is of keys 8 (w % 2), queries 8 (w / 2) onwards.
template <int kRowBytes, int kTerms>
__device__ __forceinline__ void put_ds(unsigned char* tile, int row, const std::uint32_t (&ds)[kTerms][4]) {
#pragma unroll
  for (int term = 0; term < kTerms; ++term) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      unsigned char* const run = tile + swizzled_run<kRowBytes>(row + 8 * (w % 2), 2 * term + w / 2);
      *reinterpret_cast<std::uint32_t*>(run + threadIdx.x % 4 * 4) = ds[term][w];
    }
  }
}

// Four sums of a query's dq.
template <int kD>
__device__ __forceinline__ float4* dq_quad(unsigned char* queries, int query, int quad) {
  return reinterpret_cast<float4*>(queries + query * 4 * kD) + (quad ^ query % 8);
}

// Store a warpgroup's dq of 64 queries from `query0` on.
template <int kD>
__device__ __forceinline__ void put_dq(unsigned char* queries, int query0, const float (&dq)[kD / 2]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = query0 + threadIdx.x / 32 * 16 + lane / 4 + 8 * half;
#pragma unroll
    for (int eight = 0; eight < kD / 8; ++eight) {
      float4* const quad = dq_quad<kD>(queries, query, 2 * eight + lane % 4 / 2);
      reinterpret_cast<float2*>(quad)[lane % 2] = {dq[4 * eight + 2 * half], dq[4 * eight + 2 * half + 1]};
    }
  }
}

// Returns eight channels of a query's dq, times `scale`: this block's sums and those of the other block of a cluster of
// `ranks`, which is one or two.
template <class T, int kD>
__device__ __forceinline__ uint4 dq_over_pair(unsigned char* queries, int query, int run, int rank, int ranks,
                                              float scale) {
  float sum[8];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float4* const quad = dq_quad<kD>(queries, query, 2 * run + half);
    const float4 local = *quad;
    const float4 peer = ranks > 1 ? ptx::ld_shared_cluster(ptx::mapa(quad, 1 - rank)) : float4{};
    sum[4 * half] = scale * (local.x + peer.x);
    sum[4 * half + 1] = scale * (local.y + peer.y);
    sum[4 * half + 2] = scale * (local.z + peer.z);
    sum[4 * half + 3] = scale * (local.w + peer.w);
  }
  return pack<T>(sum);
}

}  // namespace ladder::attention

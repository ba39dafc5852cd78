// Idea:   one pass: a block has all keys of an image's head, a warp 16 or 32 of them. p and ds are made once; dk and dv
//         stay in the warp's registers, and ds goes through shared memory to the warps that own its queries, which sum
//         dq over all keys and store it once.
// Parent: v03.
// Why:    v03 makes scores and dp twice, seven products for the formula's five, and reads its tiles from L2 once more
//         for each block of own tokens. Here everything of a head is loaded once. No sum crosses blocks, so the order
//         is fixed. Limiter left: the tensor cores wait at two barriers for every 64 queries, and a head of 256 tokens
//         is one block, so that 192 heads leave a second wave on 132 SMs where one block fills an SM.
// Needs:  16 bits; at most 256 tokens.
// Spills: 56 bytes of fragment addresses with 256 keys at d = 32, 64 if strided, so that two blocks share an SM.

#include "dev/attention/heads.h"
#include "dev/attention/mma_rows.h"
#include "dev/attention/mma_tile.h"
#include "dev/ptx/approximate.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/opaque.h"

namespace ladder::attention {
namespace {

constexpr int kStepQueries = 64;

template <class T, int kD, int kWarps_, int kTiles_>
struct OnePassShape {
  static constexpr int kWarps = kWarps_, kTiles = kTiles_;  // a warp has kTiles times 16 keys
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kKeys = kWarps * kTiles * 16;
  static constexpr int kPairBytes = kKeys * 4 * kD;  // of k and v, and of q and d_o
  static constexpr int kDsBytes = kKeys * kStepQueries * 2;
  static constexpr int kSmemBytes = 2 * kPairBytes + kDsBytes + kKeys * static_cast<int>(sizeof(float2));
  // A step's dq is 64 x kD: a warp takes 16 queries, and kParts warps share these, each with a part of the channels.
  static constexpr int kParts = kWarps / (kStepQueries / 16);
  static constexpr int kPartRuns = kD / 8 / kParts;
  static_assert(kParts >= 1 && kPartRuns % 2 == 0, "a fragment of k is sixteen channels");
};

template <class T, int kD, class S, class View>
__global__ void __launch_bounds__(S::kThreads, kD == 64 && S::kKeys > 64 ? 1 : 2)
    attention_backward_v04_kernel(Sizes p, float scale, typename View::template Qkv<const T> qkv, const T* o,
                                  const float* lse, typename View::template Heads<const T> d_o,
                                  typename View::template Qkv<T> dqkv) {
  constexpr int kTiles = S::kTiles;
  constexpr int kRowBytes = 4 * kD;
  constexpr int kDsRowBytes = kStepQueries * 2;
  LADDER_DYN_SMEM(smem);
  unsigned char* const keys = smem;                                             // [key][k v], swizzled
  unsigned char* const queries = keys + S::kPairBytes;                          // [query][q d_o], swizzled
  unsigned char* const ds_tile = queries + S::kPairBytes;                       // [key][a step's queries], swizzled
  float2* const statistics = reinterpret_cast<float2*>(ds_tile + S::kDsBytes);  // of queries: lse log2(e), delta

  const int head = blockIdx.x;
  const int image = blockIdx.y;
  const auto head_qkv = View::parts(qkv, p, kD, image, head);
  const auto gradients = View::parts(dqkv, p, kD, image, head);
  const HeadRows<const T> o_rows = Legacy::rows(o, p, kD, image, head);
  const HeadRows<const T> d_o_rows = View::rows(d_o, p, kD, image, head);
  ptx::grid_dependency_wait();
  copy_pairs<T, kD, S::kKeys, S::kThreads>(keys, head_qkv.k(), head_qkv.k_pitch(), head_qkv.v(), head_qkv.v_pitch(), 0,
                                           p.t);
  copy_pairs<T, kD, S::kKeys, S::kThreads>(queries, head_qkv.q(), head_qkv.q_pitch(), d_o_rows.begin(), d_o_rows.pitch,
                                           0, p.t);
  ptx::cp_async_commit();

  // delta, one query a thread; o is loaded while the copies are in flight. Out-of-range queries: lse = +inf, p = 0.
  static_assert(S::kKeys <= 2 * S::kThreads);
  for (int i = threadIdx.x; i < S::kKeys; i += S::kThreads) {
    const int o_row = o_rows.index(i);
    const int d_o_row = d_o_rows.index(i);
    float2 both = {INFINITY, 0.0f};
    if (i < p.t)
      both = {lse[(image * p.heads + head) * p.t + i] * kLog2E, delta_of<T, kD>(o + o_row, d_o_rows.tensor + d_o_row)};
    statistics[i] = both;
  }
  ptx::grid_dependency_launch();
  ptx::cp_async_wait<0>();
  __syncthreads();

  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int key0 = warp * kTiles * 16;
  const float scale_log2 = scale * kLog2E;
  float dk[kTiles][kD / 8][4] = {};
  float dv[kTiles][kD / 8][4] = {};

  for (int step0 = 0; step0 < p.t; step0 += kStepQueries) {
#pragma unroll 1
    for (int query = 0; query < kStepQueries; query += 16) {
      // Transposed scores and dp, [key][query], of sixteen queries. A lane has columns 2 (lane % 4) and the next of
      // eight.
      std::uint32_t probabilities[kTiles][4];
      std::uint32_t ds[kTiles][4];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        float s[2][4] = {};
        float dp[2][4] = {};
#pragma unroll
        for (int k = 0; k < kD / 16; ++k) {
          std::uint32_t rows[4];
          std::uint32_t columns[4];
          load_rows<kRowBytes>(rows, keys, key0 + 16 * tile, 2 * k);
          load_columns<kRowBytes>(columns, queries, step0 + query, 2 * k);
          multiply<T>(s[0], s[1], rows, columns);
          load_rows<kRowBytes>(rows, keys, key0 + 16 * tile, kD / 8 + 2 * k);
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
        as_rows<T>(probabilities[tile], s[0], s[1]);
        as_rows<T>(ds[tile], dp[0], dp[1]);

        // Store ds, [key][query], for the warps that own these queries. Word i: from key 8 (i % 2), query 8 (i / 2) on.
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = key0 + 16 * tile + 8 * (i % 2) + lane / 4;
          unsigned char* const run = ds_tile + swizzled<kDsRowBytes>(key, query / 8 + i / 2);
          *reinterpret_cast<std::uint32_t*>(run + lane % 4 * 4) = key < p.t ? ds[tile][i] : 0;
        }
      }
#pragma unroll
      for (int run = 0; run < kD / 8; run += 2) {
        std::uint32_t summands[4];
        load_summands<kRowBytes>(summands, queries, step0 + query, run);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) multiply<T>(dk[tile][run], dk[tile][run + 1], ds[tile], summands);
        load_summands<kRowBytes>(summands, queries, step0 + query, kD / 8 + run);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          multiply<T>(dv[tile][run], dv[tile][run + 1], probabilities[tile], summands);
        }
      }
    }
    __syncthreads();

    // dq of sixteen queries and a part of the channels, over all keys in order. ldmatrix transposes ds.
    const int query0 = warp / S::kParts * 16;
    const int run0 = warp % S::kParts * S::kPartRuns;
    float dq[S::kPartRuns][4] = {};
    for (int key = 0; key < p.t; key += 16) {
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
      const int row = step0 + query0 + lane / 4 + 8 * half;
#pragma unroll
      for (int run = 0; run < S::kPartRuns; ++run) {
        if (row >= p.t) continue;
        const std::uint32_t word = packed<T>(scale * dq[run][2 * half], scale * dq[run][2 * half + 1]);
        *reinterpret_cast<std::uint32_t*>(gradients.q() + row * gradients.q_pitch() + (run0 + run) * 8 + lane % 4 * 2) =
            word;
      }
    }
    __syncthreads();  // all warps have read ds
  }

  const int out_row0 = ptx::opaque(key0) + lane / 4;  // or the output's addresses would take registers from the loop
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = out_row0 + 16 * tile + 8 * half;
      store_row<T, kD>(gradients.k(row), dk[tile], half, scale, row < p.t);
      store_row<T, kD>(gradients.v(row), dv[tile], half, 1.0f, row < p.t);
    }
  }
}

template <class T, int kD, int kWarps, int kTiles, class View>
KernelPlan<Backward> keys_plan(const Problem& p, const char* name) {
  using S = OnePassShape<T, kD, kWarps, kTiles>;
  const auto bind = [p](const Backward::Tensors& t, void*) {
    return bind_launch(
        attention_backward_v04_kernel<T, kD, S, View>,
        {.grid = dim3(p.heads, p.n), .block = S::kThreads, .dynamic_smem = S::kSmemBytes, .overlaps_previous = true},
        p.sizes(), scale_of(p), View::template inputs<T>(p, t), static_cast<const T*>(t.o), t.lse,
        View::template d_o<T>(p, t), View::template gradients<T>(p, t));
  };
  return {.name = name, .bind = bind};
}

// Plans that fit the head, the fewest keys first: a larger block would only idle.
template <class T, int kD, class View>
std::vector<KernelPlan<Backward>> keys_plans(const Problem& p) {
  std::vector<KernelPlan<Backward>> plans;
  if (p.t <= 64) plans.push_back(keys_plan<T, kD, 4, 1, View>(p, "64"));
  if (p.t <= 128) plans.push_back(keys_plan<T, kD, 8, 1, View>(p, "128"));
  plans.push_back(keys_plan<T, kD, 8, 2, View>(p, "256"));
  return plans;
}

std::vector<KernelPlan<Backward>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Backward>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      return with_view(
          p, [&]<class View>(View) { return p.d == 32 ? keys_plans<T, 32, View>(p) : keys_plans<T, 64, View>(p); });
    }
    return {};
  });
}

const char* supports(const Problem& p) {
  return p.t > 256 ? "a block has shared memory and registers for 256 tokens" : grid_and_rows(p);
}

}  // namespace
}  // namespace ladder::attention

LADDER_VERSION(ladder::attention::Backward, {.plans = ladder::attention::plans,
                                             .plan_names = {"64", "128", "256"},
                                             .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                             .supports = ladder::attention::supports,
                                             .min_arch = 80})

// Idea:   mma.sync with everything but keys and values in registers: scores leave one product in the layout in which the
//         next one takes probabilities, so they never see shared memory. Keys and values of an image's head, up to 256
//         tokens, are asked for at once.
// Parent: v03.
// Why:    v03's fragments are opaque, so its scores, probabilities and sums go through shared memory at every step. Here a
//         warp keeps 16 or 32 queries, their maxima and their sums; what it reads is fragments of keys and values, and with
//         32 queries each serves twice. Up to 64 tokens the softmax is exact at once, above it is kept up to date from 64
//         keys to the next. Limiter left: exponentials, 16 a clock and SM, as long as a quarter of the products at d = 32,
//         and for small images the way from DRAM to the first product.
// Needs:  16 bits.

#include <algorithm>

#include "dev/attention/heads.h"
#include "dev/attention/mma_rows.h"
#include "dev/attention/mma_tile.h"
#include "dev/ptx/approximate.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::attention {
namespace {

constexpr int kStepKeys = 64;
constexpr int kStages = 4;  // of kStepKeys: images of up to 256 tokens are loaded whole

// A block has kWarps * kTiles * 16 queries of one head.
template <int kWarps_, int kTiles_, int kBlocksPerSm_>
struct QueryTile {
  static constexpr int kWarps = kWarps_, kTiles = kTiles_, kBlocksPerSm = kBlocksPerSm_;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kQueries = kWarps * kTiles * 16;
};

template <int kD>
constexpr int kStageBytes = kStepKeys * 4 * kD;

template <class T, int kD, class Shape, class View>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerSm)
    attention_forward_v04_kernel(Sizes p, float scale, typename View::template Qkv<const T> qkv, T* o, float* lse) {
  constexpr int kTiles = Shape::kTiles;
  constexpr int kRowBytes = 4 * kD;  // of a token: k, then v
  LADDER_DYN_SMEM(smem);             // kStages times [key][k v], swizzled

  const int head = blockIdx.y;
  const int image = blockIdx.z;
  const auto head_qkv = View::parts_from_image(qkv, p, kD, image, head);
  const int num_steps = ceil_div(p.t, kStepKeys);
  const auto fetch = [&](int step) {
    copy_pairs<T, kD, kStepKeys, Shape::kThreads>(smem + step % kStages * kStageBytes<kD>, head_qkv.k(),
                                                  head_qkv.k_pitch(), head_qkv.v(), head_qkv.v_pitch(),
                                                  step * kStepKeys, p.t);
  };
  ptx::grid_dependency_wait();
#pragma unroll 1
  for (int step = 0; step < kStages; ++step) {
    if (step < num_steps) fetch(step);
    ptx::cp_async_commit();  // one group a step, empty or not, so that the count of pending groups tells the step
  }

  // This lane's queries are row0 + 16 tile and that + 8.
  const int warp = threadIdx.x / 32;
  const int row0 = blockIdx.x * Shape::kQueries + warp * kTiles * 16 + threadIdx.x % 32 / 4;
  std::uint32_t queries[kTiles][kD / 16][4];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
    load_rows<T, kD>(queries[tile], head_qkv.q(), head_qkv.q_pitch(), row0 + 16 * tile, p.t);

  // e^(scale * x) is one ex2 of x * scale_log2, a product that the argument's multiply-add includes.
  const float scale_log2 = scale * kLog2E;
  float row_max[kTiles][2];  // of the unscaled scores
  float sum[kTiles][2] = {};
  float weighted[kTiles][kD / 8][4] = {};
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) row_max[tile][0] = row_max[tile][1] = -INFINITY;

  for (int step = 0; step < num_steps; ++step) {
    ptx::cp_async_wait<kStages - 1>();
    __syncthreads();
    const unsigned char* const pairs = smem + step % kStages * kStageBytes<kD>;

    float s[kTiles][kStepKeys / 8][4] = {};
#pragma unroll
    for (int keys = 0; keys < kStepKeys; keys += 16) {
#pragma unroll
      for (int k = 0; k < kD / 16; ++k) {
        std::uint32_t columns[4];
        load_columns<kRowBytes>(columns, pairs, keys, 2 * k);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          multiply<T>(s[tile][keys / 8], s[tile][keys / 8 + 1], queries[tile][k], columns);
        }
      }
    }

    // Keys that are not there.
    if (const int keys_left = p.t - step * kStepKeys; keys_left < kStepKeys) {
      const int lane_keys_left = keys_left - static_cast<int>(threadIdx.x % 4) * 2;  // from this lane's first key on
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int j = 0; j < kStepKeys / 8; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (8 * j + i % 2 >= lane_keys_left) s[tile][j][i] = -INFINITY;
          }
        }
      }
    }

    // The maximum so far; what was summed before is brought down to it; p.
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float step_max = row_max[tile][half];
#pragma unroll
        for (int j = 0; j < kStepKeys / 8; ++j) {
          step_max = fmaxf(step_max, fmaxf(s[tile][j][2 * half], s[tile][j][2 * half + 1]));
        }
        step_max = quad_max(step_max);
        const float rescale =
            ptx::exp2_approximate((row_max[tile][half] - step_max) * scale_log2);  // 0 in the first step
        row_max[tile][half] = step_max;
        const float offset = step_max * scale_log2;
        float row_sum = 0;
#pragma unroll
        for (int j = 0; j < kStepKeys / 8; ++j) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            s[tile][j][i] = ptx::exp2_approximate(fmaf(s[tile][j][i], scale_log2, -offset));
            row_sum += s[tile][j][i];
          }
        }
        sum[tile][half] = sum[tile][half] * rescale + row_sum;  // of this lane's keys
#pragma unroll
        for (int j = 0; j < kD / 8; ++j) {
          weighted[tile][j][2 * half] *= rescale;
          weighted[tile][j][2 * half + 1] *= rescale;
        }
      }
    }

#pragma unroll
    for (int keys = 0; keys < kStepKeys; keys += 16) {
      std::uint32_t probabilities[kTiles][4];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        as_rows<T>(probabilities[tile], s[tile][keys / 8], s[tile][keys / 8 + 1]);
      }
#pragma unroll
      for (int run = 0; run < kD / 8; run += 2) {
        std::uint32_t values[4];
        load_summands<kRowBytes>(values, pairs, keys, kD / 8 + run);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          multiply<T>(weighted[tile][run], weighted[tile][run + 1], probabilities[tile], values);
        }
      }
    }

    if (step + kStages < num_steps) {
      __syncthreads();  // all have left the stage
      fetch(step + kStages);
    }
    ptx::cp_async_commit();
  }
  ptx::grid_dependency_launch();

#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float row_sum = quad_sum(sum[tile][half]);
      const int row = row0 + 16 * tile + 8 * half;
      const bool inside = row < p.t;
      if (inside && threadIdx.x % 4 == 0)
        lse[(image * p.heads + head) * p.t + row] = row_max[tile][half] * scale + logf(row_sum);
      store_row<T, kD>(o + ((image * p.t + row) * p.heads + head) * kD, weighted[tile], half, 1.0f / row_sum, inside);
    }
  }
}

template <class T, int kD, class Shape, class View>
KernelPlan<Forward> shape_plan(const Problem& p, const char* name) {
  const auto bind = [p](const Forward::Tensors& t, void*) {
    const std::size_t stages = std::min(kStages, ceil_div(p.t, kStepKeys));
    return bind_launch(attention_forward_v04_kernel<T, kD, Shape, View>,
                       {.grid = dim3(ceil_div(p.t, Shape::kQueries), p.heads, p.n),
                        .block = Shape::kThreads,
                        .dynamic_smem = stages * kStageBytes<kD>,
                        .overlaps_previous = true},
                       p.sizes(), scale_of(p), View::template inputs<T>(p, t), static_cast<T*>(t.o), t.lse);
  };
  return {.name = name, .bind = bind};
}

// 32 queries a warp fetch half the fragments a query; 16 keep more SMs busy where queries are few, and are all that fits
// the registers at d = 64.
template <class T, int kD, class View>
std::vector<KernelPlan<Forward>> shape_plans(const Problem& p) {
  std::vector<KernelPlan<Forward>> plans = {shape_plan<T, kD, QueryTile<4, 1, kD == 32 ? 4 : 3>, View>(p, "4x16"),
                                            shape_plan<T, kD, QueryTile<8, 1, kD == 32 ? 2 : 1>, View>(p, "8x16"),
                                            shape_plan<T, kD, QueryTile<4, 2, kD == 32 ? 3 : 2>, View>(p, "4x32")};
  constexpr int kEnoughBlocks = 264;  // two an SM
  const std::int64_t blocks = std::int64_t{p.n} * p.heads * ceil_div(p.t, 128);
  return with_default<Forward>(std::move(plans), p.t > 64 && blocks >= kEnoughBlocks ? 2 : 0);
}

std::vector<KernelPlan<Forward>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Forward>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      return with_view(
          p, [&]<class View>(View) { return p.d == 32 ? shape_plans<T, 32, View>(p) : shape_plans<T, 64, View>(p); });
    }
    return {};
  });
}

}  // namespace
}  // namespace ladder::attention

LADDER_VERSION(ladder::attention::Forward, {.plans = ladder::attention::plans,
                                            .plan_names = {"4x16", "8x16", "4x32"},
                                            .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                            .supports = ladder::attention::grid_and_rows,
                                            .min_arch = 80})

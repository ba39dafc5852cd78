// Idea:   v04 with operands of 32 bits, mma.sync in tf32: the terms and columns of both products are ordered such that a
//         lane loads whole runs of four channels or words in any column, and probabilities are the second product's operand
//         as they leave the first, rounded.
// Parent: v04.
// Why:    the FMA pipe limits v02, the only other version in tf32. ldmatrix transposes elements of 16 bits alone, and sums
//         lie in other lanes than operands of eight terms: in the usual order probabilities would cross lanes. Limiter
//         left: exponentials and, at half the rate of 16 bits, products.
// Needs:  tf32.
// Spills: 36 bytes with 32 queries a warp where rows are found by strides, their sums, so that three blocks share an SM.

#include <algorithm>

#include "dev/attention/heads.h"
#include "dev/attention/tf32_tile.h"
#include "dev/ptx/approximate.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::attention {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kStepKeys = 64;
template <int kD>
constexpr int kStageBytes = kStepKeys * 8 * kD;
template <int kD>
constexpr int kStages = 128 / kD;  // 64 KB: of 32 channels up to 256 tokens are loaded whole

// A block has kWarps * kTiles * 16 queries of one head.
template <int kD, int kTiles, class View>
__global__ void __launch_bounds__(kThreads, kTiles == 1 && kD == 32 ? 4 : 3)
    attention_forward_v06_kernel(Sizes p, float scale, typename View::template Qkv<const float> qkv, float* o,
                                 float* lse) {
  constexpr int kRowBytes = 8 * kD;  // of a token: k, then v
  constexpr int kNumStages = kStages<kD>;
  LADDER_DYN_SMEM(smem);  // stages times [key][k v], swizzled

  const int head = blockIdx.y;
  const int image = blockIdx.z;
  const auto head_qkv = View::parts_from_image(qkv, p, kD, image, head);
  const int num_steps = ceil_div(p.t, kStepKeys);
  const auto fetch = [&](int step) {
    copy_pairs<float, kD, kStepKeys, kThreads>(smem + step % kNumStages * kStageBytes<kD>, head_qkv.k(),
                                               head_qkv.k_pitch(), head_qkv.v(), head_qkv.v_pitch(), step * kStepKeys,
                                               p.t);
  };
  ptx::grid_dependency_wait();
#pragma unroll 1
  for (int step = 0; step < kNumStages; ++step) {
    if (step < num_steps) fetch(step);
    ptx::cp_async_commit();  // one group a step, empty or not, so that the count of pending groups tells the step
  }

  // This lane's queries are row0 + 16 tile and that + 8.
  const int row0 = (blockIdx.x * kWarps + threadIdx.x / 32) * kTiles * 16 + threadIdx.x % 32 / 4;
  std::uint32_t queries[kTiles][kD / 8][4];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
    load_tf32_rows<kD>(queries[tile], head_qkv.q(), head_qkv.q_pitch(), row0 + 16 * tile, p.t);

  // e^(scale * x) is one ex2 of x * scale_log2, a product that the argument's multiply-add includes.
  const float scale_log2 = scale * kLog2E;
  float row_max[kTiles][2];  // of the unscaled scores
  float row_sum[kTiles][2] = {};
  float weighted[kTiles][kD / 8][4] = {};
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) row_max[tile][0] = row_max[tile][1] = -INFINITY;

  for (int step = 0; step < num_steps; ++step) {
    ptx::cp_async_wait<kNumStages - 1>();
    __syncthreads();
    if (step == max(num_steps - kNumStages, 0)) ptx::grid_dependency_launch();
    const int stage = step % kNumStages * kStageBytes<kD>;

    // Scores of eight keys at a time. Element i of eight is of row half i / 2 and key t or t + 4.
    float s[kStepKeys / 8][kTiles][4] = {};
    const int scores_at = score_runs<kRowBytes>(stage);
#pragma unroll
    for (int j = 0; j < kStepKeys / 8; ++j) add_scores<kD>(s[j], queries, smem + 8 * j * kRowBytes, scores_at);

    // Keys that are not there.
    if (const int keys_left = p.t - step * kStepKeys; keys_left < kStepKeys) {
      const int lane_keys_left = keys_left - static_cast<int>(threadIdx.x % 4);  // from this lane's first key on
#pragma unroll
      for (int j = 0; j < kStepKeys / 8; ++j) {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (8 * j + i % 2 * 4 >= lane_keys_left) s[j][tile][i] = -INFINITY;
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
          step_max = fmaxf(step_max, fmaxf(s[j][tile][2 * half], s[j][tile][2 * half + 1]));
        }
        step_max = quad_max(step_max);
        const float rescale =
            ptx::exp2_approximate((row_max[tile][half] - step_max) * scale_log2);  // 0 in the first step
        row_max[tile][half] = step_max;
        const float offset = step_max * scale_log2;
        float step_sum = 0;
#pragma unroll
        for (int j = 0; j < kStepKeys / 8; ++j) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            s[j][tile][i] = ptx::exp2_approximate(fmaf(s[j][tile][i], scale_log2, -offset));
            step_sum += s[j][tile][i];
          }
        }
        row_sum[tile][half] = row_sum[tile][half] * rescale + step_sum;  // of this lane's keys
#pragma unroll
        for (int j = 0; j < kD / 8; ++j) {
          weighted[tile][j][2 * half] *= rescale;
          weighted[tile][j][2 * half + 1] *= rescale;
        }
      }
    }

    const int weighted_at = weighted_words<kRowBytes>(stage);
#pragma unroll
    for (int j = 0; j < kStepKeys / 8; ++j) {
      std::uint32_t probabilities[kTiles][4];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) as_tf32_rows(probabilities[tile], s[j][tile]);
      add_weighted<kRowBytes, kD>(weighted, probabilities, smem + 8 * j * kRowBytes + kRowBytes / 2, weighted_at);
    }

    if (step + kNumStages < num_steps) {
      __syncthreads();  // all have left the stage
      fetch(step + kNumStages);
    }
    ptx::cp_async_commit();
  }

#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = quad_sum(row_sum[tile][half]);
      const int row = row0 + 16 * tile + 8 * half;
      const bool inside = row < p.t;
      if (inside && threadIdx.x % 4 == 0)
        lse[(image * p.heads + head) * p.t + row] = row_max[tile][half] * scale + logf(sum);
      store_tf32_row<kD>(o + ((image * p.t + row) * p.heads + head) * kD, weighted[tile], half, 1.0f / sum, inside);
    }
  }
}

template <int kD, int kTiles, class View>
KernelPlan<Forward> tile_plan(const Problem& p, const char* name) {
  const auto bind = [p](const Forward::Tensors& t, void*) {
    const std::size_t stages = std::min(kStages<kD>, ceil_div(p.t, kStepKeys));
    return bind_launch(attention_forward_v06_kernel<kD, kTiles, View>,
                       {.grid = dim3(ceil_div(p.t, kWarps * kTiles * 16), p.heads, p.n),
                        .block = kThreads,
                        .dynamic_smem = stages * kStageBytes<kD>,
                        .overlaps_previous = true},
                       p.sizes(), scale_of(p), View::template inputs<float>(p, t), static_cast<float*>(t.o), t.lse);
  };
  return {.name = name, .bind = bind};
}

// 32 queries a warp fetch half the fragments a query; 16 keep more SMs busy where queries are few, and are all that fits
// the registers at d = 64.
std::vector<KernelPlan<Forward>> plans(const Problem& p) {
  return with_view(p, [&]<class View>(View) -> std::vector<KernelPlan<Forward>> {
    if (p.d == 64) return {tile_plan<64, 1, View>(p, "16")};
    constexpr int kEnoughBlocks = 264;  // two an SM
    const std::int64_t blocks = std::int64_t{p.n} * p.heads * ceil_div(p.t, 128);
    return with_default<Forward>({tile_plan<32, 1, View>(p, "16"), tile_plan<32, 2, View>(p, "32")},
                                 p.t > 64 && blocks >= kEnoughBlocks ? 1 : 0);
  });
}

}  // namespace
}  // namespace ladder::attention

LADDER_VERSION(ladder::attention::Forward, {.plans = ladder::attention::plans,
                                            .plan_names = {"16", "32"},
                                            .dtypes = {ladder::Dtype::tf32},
                                            .supports = ladder::attention::grid_and_rows,
                                            .min_arch = 80})

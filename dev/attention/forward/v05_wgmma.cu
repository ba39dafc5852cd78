// Idea:   wgmma: a warpgroup has 64 queries; scores of 64 keys leave the first product in the layout in which the
//         second one takes probabilities from registers as its A. The scores of the next keys are multiplied beside the
//         values of these, so that a group waits once a step, and makes maxima and exponentials while its values are
//         multiplied.
// Parent: v04.
// Why:    v04 issues a product for every sixteen keys by eight channels and fetches fragments for it by ldmatrix, in
//         the same four schedulers that make exponentials. wgmma reads keys and values from where they lie and leaves
//         the schedulers to the softmax. Limiter left: exponentials, 16 a clock and SM: twice the products' time at d =
//         32, as much at 64.
// Needs:  sm_90a; 16 bits.

// Shared memory, rows of 2 d bytes, swizzled by their width:
//
//     queries   [64 x kGroups][q]
//     stages    [min(4, steps)][k, then v][64 keys]
//
// Step i of a warpgroup, 64 keys:
//
//     tensor cores   s = q k(i)' and o += p(i - 1) v(i - 1), in flight together
//     cp.async       k, v of step i + 2, to the stage that step i - 2 has left
//     softmax        row maxima and p(i), as soon as s is there; then o is scaled to the new maxima

#include <algorithm>

#include "dev/attention/heads.h"
#include "dev/attention/wgmma_rows.h"
#include "dev/ptx/approximate.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::attention {
namespace {

constexpr int kStepKeys = 64;
constexpr int kStages = 4;  // of kStepKeys: images of up to 256 tokens are loaded whole

template <int kD, int kGroups_>
struct WgmmaShape {
  static constexpr int kGroups = kGroups_;
  static constexpr int kThreads = kGroups * kGroupThreads;
  static constexpr int kQueries = kGroups * kGroupRows;
  static constexpr int kRowBytes = 2 * kD;
  static constexpr int kStageBytes = 2 * kStepKeys * kRowBytes;  // k, then v

  static std::size_t smem_bytes(int t) {
    return std::size_t{1} * kQueries * kRowBytes + std::min(kStages, ceil_div(t, kStepKeys)) * kStageBytes;
  }
};

template <class T, int kD, class S, class View>
__global__ void __launch_bounds__(S::kThreads, 4 / S::kGroups)
    attention_forward_v05_kernel(Sizes p, float scale, float scale_log2, typename View::template Qkv<const T> qkv, T* o,
                                 float* lse) {
  constexpr int kRowBytes = S::kRowBytes;
  LADDER_DYN_SMEM(smem);                                            // all swizzled
  unsigned char* const queries = smem;                              // [query][q]
  unsigned char* const stages = queries + S::kQueries * kRowBytes;  // [stage][k, then v][key]

  const int head = blockIdx.y;
  const int image = blockIdx.z;
  const int block_query0 = blockIdx.x * S::kQueries;
  const int num_steps = ceil_div(p.t, kStepKeys);
  const bool all_in_smem = num_steps <= kStages;
  const auto head_qkv = View::parts_from_image(qkv, p, kD, image, head);
  const auto fetch = [&](int step) {
    unsigned char* const to = stages + step % kStages * S::kStageBytes;
    copy_rows<T, kD, kStepKeys, S::kThreads>(to, head_qkv.k(), head_qkv.k_pitch(), step * kStepKeys, p.t);
    copy_rows<T, kD, kStepKeys, S::kThreads>(to + S::kStageBytes / 2, head_qkv.v(), head_qkv.v_pitch(),
                                             step * kStepKeys, p.t);
  };
  ptx::grid_dependency_wait();
  copy_rows<T, kD, S::kQueries, S::kThreads>(queries, head_qkv.q(), head_qkv.q_pitch(), block_query0, p.t);
  ptx::cp_async_commit();
#pragma unroll 1
  for (int step = 0; step < kStages; ++step) {
    if (step < num_steps) fetch(step);
    ptx::cp_async_commit();  // one group a step, empty or not, so that the count of pending groups tells the step
  }
  if (all_in_smem) ptx::grid_dependency_launch();

  const int group = __shfl_sync(0xffffffffu, threadIdx.x / kGroupThreads, 0);  // warp-uniform for the compiler
  const std::uint64_t group_queries =
      ptx::wgmma_ahead(rows_operand<kRowBytes>(queries), group * kGroupRows * kRowBytes);
  const std::uint64_t first_stage = rows_operand<kRowBytes>(stages);

  // e^(scale * x) is one ex2 of x * scale_log2, log2(e) * scale, which is folded into the argument's multiply-add. A
  // lane has two queries, eight rows apart.
  float row_max[2] = {-INFINITY, -INFINITY};  // row maxima of the unscaled scores
  float sum[2] = {};
  float weighted[kD / 2] = {};
  std::uint32_t probabilities[kStepKeys / kDepth][4];
  const auto multiply_values = [&](int step) {
    const std::uint64_t values = ptx::wgmma_ahead(first_stage, step % kStages * S::kStageBytes + S::kStageBytes / 2);
#pragma unroll
    for (int i = 0; i < kStepKeys / kDepth; ++i) {
      ptx::wgmma_m64_a_registers_b_mn<T, kD>(weighted, probabilities[i],
                                             ptx::wgmma_ahead(values, i * kDepth * kRowBytes), true);
    }
    ptx::wgmma_commit();
  };

  // Multiply a step's scores, overlapped with the previous step's values, and take their softmax.
  const auto score_step = [&]<bool kFirst>(int step) {
    ptx::wgmma_fence_stores();
    __syncthreads();  // this step's keys have landed, and nobody reads the stage before the last any more
    const std::uint64_t keys = ptx::wgmma_ahead(first_stage, step % kStages * S::kStageBytes);
    float s[kStepKeys / 2];
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kD / kDepth; ++i) {
      ptx::wgmma_m64<T, kStepKeys>(s, ptx::wgmma_ahead(group_queries, i * kTermBytes),
                                   ptx::wgmma_ahead(keys, i * kTermBytes), i > 0);
    }
    ptx::wgmma_commit();
    if constexpr (!kFirst) {
      multiply_values(step - 1);
      if (step > 1) {
        if (step - 2 + kStages < num_steps) fetch(step - 2 + kStages);
        ptx::cp_async_commit();
      }
    }
    ptx::wgmma_wait<kFirst ? 0 : 1>();
    ptx::warpgroup_fence_operand(s);

    if (const int keys_left = p.t - step * kStepKeys; keys_left < kStepKeys) {  // mask out-of-range keys
      const int lane_keys_left =
          keys_left - static_cast<int>(threadIdx.x % 4) * 2;  // counted from this lane's first key
#pragma unroll
      for (int i = 0; i < kStepKeys / 2; ++i) {
        if (i / 4 * 8 + i % 2 >= lane_keys_left) s[i] = -INFINITY;
      }
    }

    // Running row maximum, and p.
    float rescale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float step_max = row_max[half];
#pragma unroll
      for (int i = 2 * half; i < kStepKeys / 2; i += 4) step_max = fmaxf(step_max, fmaxf(s[i], s[i + 1]));
      step_max = quad_max(step_max);
      rescale[half] = ptx::exp2_approximate((row_max[half] - step_max) * scale_log2);  // 0 in the first step
      row_max[half] = step_max;
      const float offset = step_max * scale_log2;
      float row_sum = 0;
#pragma unroll
      for (int i = 2 * half; i < kStepKeys / 2; i += 4) {
        s[i] = ptx::exp2_approximate(fmaf(s[i], scale_log2, -offset));
        s[i + 1] = ptx::exp2_approximate(fmaf(s[i + 1], scale_log2, -offset));
        row_sum += s[i] + s[i + 1];
      }
      sum[half] = sum[half] * rescale[half] + row_sum;  // of this lane's keys
    }

    // Rescale the accumulated output to the new maximum, once the previous step's values are added.
    if constexpr (!kFirst) {
      ptx::wgmma_wait<0>();
      ptx::warpgroup_fence_operand(weighted);
      ptx::warpgroup_fence_operand(probabilities);
#pragma unroll
      for (int i = 0; i < kD / 2; ++i) weighted[i] *= rescale[i / 2 % 2];
    }
#pragma unroll
    for (int i = 0; i < kStepKeys / kDepth; ++i) as_operand<T>(probabilities[i], s, i);
  };

  ptx::cp_async_wait<kStages - 1>();
  score_step.template operator()<true>(0);
  for (int step = 1; step < num_steps; ++step) {
    if (step == 1) {
      ptx::cp_async_wait<kStages - 2>();
    } else {
      ptx::cp_async_wait<kStages - 3>();
    }
    score_step.template operator()<false>(step);
  }
  ptx::wgmma_fence();
  multiply_values(num_steps - 1);
  ptx::wgmma_wait<0>();
  ptx::warpgroup_fence_operand(weighted);
  ptx::warpgroup_fence_operand(probabilities);
  if (!all_in_smem) ptx::grid_dependency_launch();

  const int row0 = block_query0 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float row_sum = quad_sum(sum[half]);
    const int row = row0 + 8 * half;
    const bool inside = row < p.t;
    if (inside && threadIdx.x % 4 == 0)
      lse[(image * p.heads + head) * p.t + row] = row_max[half] * scale + logf(row_sum);
    store_sums<T, kD>(o + ((image * p.t + row) * p.heads + head) * kD, weighted, half, 1.0f / row_sum, inside);
  }
}

template <class T, int kD, int kGroups, class View>
KernelPlan<Forward> groups_plan(const Problem& p, const char* name) {
  using S = WgmmaShape<kD, kGroups>;
  const auto bind = [p](const Forward::Tensors& t, void*) {
    return bind_launch(attention_forward_v05_kernel<T, kD, S, View>,
                       {.grid = dim3(ceil_div(p.t, S::kQueries), p.heads, p.n),
                        .block = S::kThreads,
                        .dynamic_smem = S::smem_bytes(p.t),
                        .overlaps_previous = true},
                       p.sizes(), scale_of(p), scale_of(p) * kLog2E, View::template inputs<T>(p, t),
                       static_cast<T*>(t.o), t.lse);
  };
  return {.name = name, .bind = bind};
}

std::vector<KernelPlan<Forward>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) -> std::vector<KernelPlan<Forward>> {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      return with_view(p, [&]<class View>(View) {
        const auto plans_of_d = [&]<int kD>() {
          return with_default<Forward>({groups_plan<T, kD, 1, View>(p, "64"), groups_plan<T, kD, 2, View>(p, "128")},
                                       p.t <= 64 ? 0 : 1);
        };
        return p.d == 32 ? plans_of_d.template operator()<32>() : plans_of_d.template operator()<64>();
      });
    }
    return {};
  });
}

}  // namespace
}  // namespace ladder::attention

LADDER_VERSION(ladder::attention::Forward, {.plans = ladder::attention::plans,
                                            .plan_names = {"64", "128"},
                                            .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                            .supports = ladder::attention::grid_and_rows,
                                            .min_arch = 90,
                                            .arch_specific = true})

// Idea:   fp32 products on bf16 tensor cores. A first kernel writes each factor as a sum of three bf16 numbers; the second
//         multiplies all pairs of parts that matter, six of nine, small ones first. Where the problem allows TF32, two parts
//         and three products do.
// Parent: v07.
// Why:    the FMA pipe, which limits v03, does a sixteenth of what tensor cores do in bf16: six products cost less than half.
//         wgmma truncates sums, so those of a step's 64 terms are added to fp32 registers, rounded, and no error grows with k;
//         one warpgroup adds while the other multiplies. Limiter left: the tensor cores, and 12 bytes an element split.
// Needs:  sm_90a; finite x and w below 2^127; a workspace of 12 bytes for each of their elements.

#include <cstdint>

#include "dev/gemm/bf16_parts.h"
#include "dev/gemm/cooperative_tile.h"
#include "dev/gemm/fragment_store.h"
#include "dev/gemm/partial_sums.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/setmaxnreg.h"
#include "dev/ptx/tma.h"
#include "dev/ptx/wgmma.h"

namespace ladder::gemm {
namespace {

constexpr int kBlockM = 128;
constexpr int kBlockN = 128;
constexpr int kPartBytes = kBlockM * kStepRowBytes;  // a step's terms of a part of x, or of w
static_assert(kBlockM == kBlockN, "stages of equal parts");
constexpr int kRun = 8;  // elements that a thread splits: 16 bytes of each part
constexpr int kSplitThreads = 256;

template <int kParts>
using Tile = CooperativeTile<kBlockM, kBlockN, 2 * kParts * kPartBytes>;

// y [m, n] = x [m, k] times w [n, k] transposed.
__host__ __device__ Product product(const Problem& p) { return {.rows = p.m, .columns = p.n, .terms = p.k}; }

// Elements of a row of parts: whole 16 bytes, for the TMA, zeros at the end.
__host__ __device__ int pitch_of(int k) { return ceil_div(k, kRun) * kRun; }

struct Matrix {
  const float* from;  // [rows, k]
  __nv_bfloat16* to;  // [part, rows, pitch]
  int rows;
};

// Blocks of y = 0 split x, those of y = 1 w. kVectors: rows of whole 16 bytes.
template <int kParts, bool kVectors>
__global__ void __launch_bounds__(kSplitThreads) gemm_fprop_v08_split_kernel(Matrix x, Matrix w, int k) {
  ptx::grid_dependency_wait();
  Matrix matrix = x;
  if (blockIdx.y == 1) matrix = w;
  const int runs_per_row = pitch_of(k) / kRun;
  const int run = static_cast<int>(blockIdx.x) * kSplitThreads + static_cast<int>(threadIdx.x);
  const int row = run / runs_per_row;
  const int col = run % runs_per_row * kRun;
  if (row >= matrix.rows) return;

  const float* const from = matrix.from + static_cast<long long>(row) * k + col;
  float values[kRun] = {};
  if constexpr (kVectors) {
#pragma unroll
    for (int i = 0; i < kRun; i += 4) {
      if (col + i >= k) continue;
      const float4 quad = *reinterpret_cast<const float4*>(from + i);
      values[i] = quad.x, values[i + 1] = quad.y, values[i + 2] = quad.z, values[i + 3] = quad.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kRun; ++i) values[i] = col + i < k ? from[i] : 0.0f;
  }
  ptx::grid_dependency_launch();

  float parts[kRun][kParts];
#pragma unroll
  for (int i = 0; i < kRun; ++i) bf16_parts(values[i], parts[i]);
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int i = 0; i < kRun; ++i) values[i] = parts[i][part];
    const long long offset = (static_cast<long long>(part) * matrix.rows + row) * pitch_of(k) + col;
    *reinterpret_cast<uint4*>(matrix.to + offset) = pack<__nv_bfloat16>(values);
  }
}

template <int kParts>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    gemm_fprop_v08_kernel(Problem p, const __grid_constant__ ptx::TensorMap x_map,
                          const __grid_constant__ ptx::TensorMap w_map, Epilogue<float> epilogue, float* y) {
  using Tile = Tile<kParts>;
  LADDER_DYN_SMEM(smem);  // [stage]: [part] of x, 128 rows of 128 bytes each, then of w
  if (threadIdx.x == kConsumerThreads) {
    ptx::tma_prefetch(x_map);
    ptx::tma_prefetch(w_map);
  }
  const StageBarriers<Tile> stages(smem);
  ptx::grid_dependency_wait();

  const Product c = product(p);
  const TileOrder<Tile> order(c);
  const int steps = ceil_div(c.terms, kStepTerms16);
  RingIndex<Tile::kStages> ring;

  if (threadIdx.x >= kConsumerThreads) {
    // The producer, one thread: all parts of a step in one box.
    ptx::warpgroup_reg_dealloc<kProducerRegisters>();
    if (threadIdx.x != kConsumerThreads) return;
    for (int tile = blockIdx.x; tile < order.count(); tile += gridDim.x) {
      const int2 first = order.offset_of(tile);
      for (int step = 0; step < steps; ++step, ring.advance()) {
        unsigned char* const to = smem + ring.stage * Tile::kStageBytes;
        ptx::Mbarrier* const full = stages.full + ring.stage;
        ptx::mbarrier_wait(stages.empty + ring.stage, ring.parity ^ 1);
        ptx::mbarrier_arrive_expect_tx(full, Tile::kStageBytes);
        ptx::tma_load(to, x_map, full, step * kStepTerms16, first.x, 0);
        ptx::tma_load(to + kParts * kPartBytes, w_map, full, step * kStepTerms16, first.y, 0);
      }
    }
    ptx::grid_dependency_launch();
    return;
  }

  ptx::warpgroup_reg_alloc<kConsumerRegisters>();
  const int group = threadIdx.x / kGroupThreads;
  const int warp = threadIdx.x / 32;
  for (int tile = blockIdx.x; tile < order.count(); tile += gridDim.x) {
    const int2 first = order.offset_of(tile);
    float sum[kBlockN / 2] = {};
    for (int step = 0; step < steps; ++step, ring.advance()) {
      const unsigned char* const x = smem + ring.stage * Tile::kStageBytes + group * Tile::kGroupRows * kStepRowBytes;
      const unsigned char* const w = smem + ring.stage * Tile::kStageBytes + kParts * kPartBytes;
      ptx::mbarrier_wait(stages.full + ring.stage, ring.parity);

      // Part i is 2^-8 of the part before it: a pair's product is 2^-8 to the sum of its numbers, and those with a sum of
      // kParts and more are too small to count.
      float acc[kBlockN / 2];
      ptx::wgmma_fence();
#pragma unroll
      for (int numbers = kParts - 1; numbers >= 0; --numbers) {
#pragma unroll
        for (int part = 0; part <= numbers; ++part) {
#pragma unroll
          for (int term = 0; term < kStepTerms16; term += kWgmmaTerms) {
            const auto of_x = ptx::wgmma_descriptor(x + part * kPartBytes + term * 2, 8 * kStepRowBytes);
            const auto of_w = ptx::wgmma_descriptor(w + (numbers - part) * kPartBytes + term * 2, 8 * kStepRowBytes);
            ptx::wgmma_m64<__nv_bfloat16, kBlockN>(acc, of_x, of_w, numbers < kParts - 1 || part > 0 || term > 0);
          }
        }
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      ptx::warpgroup_fence_operand(acc);
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(stages.empty + ring.stage);
#pragma unroll
      for (int i = 0; i < kBlockN / 2; ++i) sum[i] += acc[i];
    }
    FragmentStore<kBlockN>::store(sum, first.x + group * Tile::kGroupRows + warp % 4 * 16, first.y, c.rows, c.columns,
                                  epilogue, y);
  }
}

template <int kParts>
BoundLaunch bind_split(const Matrix& x, const Matrix& w, int k) {
  const int runs = std::max(x.rows, w.rows) * (pitch_of(k) / kRun);
  const auto kernel =
      k % 4 == 0 ? gemm_fprop_v08_split_kernel<kParts, true> : gemm_fprop_v08_split_kernel<kParts, false>;
  return bind_launch(kernel,
                     {.grid = {static_cast<unsigned>(ceil_div(runs, kSplitThreads)), 2},
                      .block = kSplitThreads,
                      .overlaps_previous = true},
                     x, w, k);
}

template <int kParts>
KernelPlan<Fprop> parts_plan(const Problem& p, const char* name) {
  const std::size_t row_bytes = std::size_t{kParts} * pitch_of(p.k) * sizeof(__nv_bfloat16);
  const auto bind = [p](const Fprop::Tensors& t, void* workspace) {
    auto* const x_parts = static_cast<__nv_bfloat16*>(workspace);
    auto* const w_parts = x_parts + std::size_t{kParts} * p.m * pitch_of(p.k);
    const auto map = [&](const __nv_bfloat16* parts, int rows) {
      return ptx::make_tensor_map(Dtype::bf16, parts,
                                  {static_cast<std::uint64_t>(pitch_of(p.k)), static_cast<std::uint64_t>(rows), kParts},
                                  {kStepTerms16, kBlockM, kParts});
    };
    const int tiles = num_tiles<Tile<kParts>>(product(p));
    return in_order({bind_split<kParts>({static_cast<const float*>(t.x), x_parts, p.m},
                                        {static_cast<const float*>(t.w), w_parts, p.n}, p.k),
                     bind_launch(gemm_fprop_v08_kernel<kParts>,
                                 {.grid = static_cast<unsigned>(std::min(tiles, backend::device().num_sms)),
                                  .block = kWgmmaThreads,
                                  .dynamic_smem = Tile<kParts>::kSmemBytes,
                                  .overlaps_previous = true},
                                 p, map(x_parts, p.m), map(w_parts, p.n), epilogue_of<float, float>(p, t),
                                 static_cast<float*>(t.y))});
  };
  return {.name = name, .workspace_bytes = row_bytes * (std::size_t(p.m) + p.n), .bind = bind};
}

std::vector<KernelPlan<Fprop>> plans(const Problem& p) {
  std::vector<KernelPlan<Fprop>> all;
  if (p.allow_tf32) all.push_back(parts_plan<2>(p, "three products"));
  all.push_back(parts_plan<3>(p, "six products"));
  return all;
}

}  // namespace
}  // namespace ladder::gemm

LADDER_VERSION(ladder::gemm::Fprop, {.plans = ladder::gemm::plans,
                                     .plan_names = {"three products", "six products"},
                                     .dtypes = {ladder::Dtype::f32},
                                     .supports = ladder::gemm::one_x_only,
                                     .min_arch = 90,
                                     .arch_specific = true,
                                     .least_arithmetic = 6.0 / 16})  // six products, at sixteen times fp32's rate

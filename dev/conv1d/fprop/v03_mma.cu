// Idea:   tensor cores multiply: 16 positions times 8 output channels. Weights go from memory straight into the registers
//         that mma.sync reads, 16 bytes a lane; a block's warps share the terms of its sums.
// Parent: v02.
// Why:    v02 unpacks each weight and multiplies it by each position on the CUDA cores, a lane has few loads in flight,
//         and every sample reads the weights again. Here an instruction multiplies 16 x 8 x 16, a lane loads the next
//         four runs before it multiplies four, and a tile has positions of several samples. The two phases of a
//         transposed convolution, its even and its odd positions, are tiles of their own, each with two of the four
//         taps. Limiter: 16 to 32 KB of loads in flight in an SM, few blocks if there are few channels, and the wait
//         for the kernel in front.
// Needs:  bf16 or fp16.

#include "dev/conv1d/mma_tile.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv1d {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kBatch = 4;  // steps whose weights a lane loads ahead
constexpr int kMostXBytes = 64 << 10;

// Positions of a block: all of some samples, or some of one sample. Positions are counted within a phase.
struct PositionPlan {
  int phases;                // 2 of a transposed convolution
  int length;                // positions of a sample in a phase
  int step;                  // rows of x from one position to the next
  int samples;               // of a block
  int positions_per_sample;  // in a block
  int rows;                  // of x for these positions, of each sample
  int channel_blocks;        // of 32 channels each, in shared memory at a time
};

template <class S>
PositionPlan plan_of(const Problem& p) {
  PositionPlan plan{
      .phases = p.transposed ? 2 : 1, .length = p.transposed ? p.l : p.out_l(), .step = p.stride2 ? 2 : 1};
  plan.positions_per_sample = std::min(plan.length, S::kPositions);
  plan.samples = std::min(p.n, S::kPositions / plan.positions_per_sample);
  plan.rows = (plan.positions_per_sample - 1) * plan.step + p.terms();
  plan.channel_blocks =
      std::min(ceil_div(p.c, kStepChannels), kMostXBytes / kStepRowBytes / (plan.samples * plan.rows) - 1);
  return plan;
}

template <class T, bool kVectors, class S>
__global__ void __launch_bounds__(kThreads, 2)
    conv1d_fprop_v03_kernel(Problem p, PositionPlan plan, XParts<T> parts, const T* weights, const float* bias,
                            const T* residual, T* y) {
  LADDER_DYN_SMEM(x_rows);  // [sample][row][channel] T
  LADDER_SHARED(float2, part_pairs, [kWarps][S::kPositions * S::kChannels / 2]);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int pitch = x_pitch(plan.channel_blocks);
  const int first_channel = static_cast<int>(blockIdx.x) * S::kChannels;
  const int phase = static_cast<int>(blockIdx.y) % plan.phases;
  const int parts_of_length = ceil_div(plan.length, plan.positions_per_sample);
  const int first_position = static_cast<int>(blockIdx.y) / plan.phases % parts_of_length * plan.positions_per_sample;
  const int first_sample = static_cast<int>(blockIdx.y) / plan.phases / parts_of_length * plan.samples;
  // Term j of position q reads row q * step + row_of(j) of the block's rows of x, and tap tap_of(j) of w. The terms of
  // a transposed convolution go backwards through the rows.
  const int first_row =
      p.transposed ? first_position + phase - 1 : first_position * plan.step - (p.stride2 ? 1 : p.taps / 2);
  const auto row_of = [&](int j) { return p.transposed ? p.terms() - 1 - j : j; };
  const auto tap_of = [&](int j) { return p.transposed ? 2 * j + 1 - phase : j; };

  // Addresses of the lane's channels in w, and byte offsets of its positions in shared memory. Columns and rows beyond
  // the last read other ones: their sums are not used.
  const T* w[S::kColumns];
#pragma unroll
  for (int i = 0; i < S::kColumns; ++i) {
    w[i] = weights + min(first_channel + 8 * i + lane / 4, p.k - 1) * p.taps * p.c;
  }
  int x_offset[S::kTiles][2];
#pragma unroll
  for (int i = 0; i < 2 * S::kTiles; ++i) {
    const int position = 8 * i + lane / 4;
    const int sample = position / plan.positions_per_sample;
    const int row = sample < plan.samples ? sample * plan.rows + position % plan.positions_per_sample * plan.step : 0;
    x_offset[i / 2][i % 2] = row * pitch + lane % 4 * kRunBytes;
  }

  float sum[S::kTiles][S::kColumns][4] = {};
  ptx::grid_dependency_wait();
  for (int c0 = 0; c0 < p.c; c0 += plan.channel_blocks * kStepChannels) {
    const int channel_blocks = min(plan.channel_blocks, ceil_div(p.c - c0, kStepChannels));
    const int steps = p.terms() * channel_blocks;
    uint4 next[kBatch][S::kColumns];
    KStep ahead(warp, channel_blocks);
    const auto load_batch = [&] {
#pragma unroll
      for (int i = 0; i < kBatch; ++i, ahead.advance(kWarps, channel_blocks)) {
        const int c = ahead.tap < p.terms() ? c0 + ahead.channel_block * kStepChannels + lane % 4 * kRun<T> : p.c;
#pragma unroll
        for (int j = 0; j < S::kColumns; ++j) next[i][j] = load_w_run<kVectors>(p, w[j] + tap_of(ahead.tap) * p.c, c);
      }
    };
    load_batch();

    // Copy x's rows: all runs of 16 bytes of these channels.
    if (c0 > 0) __syncthreads();
    const int runs = channel_blocks * kStepChannels / kRun<T>;
    for (int i = threadIdx.x; i < plan.samples * plan.rows * runs; i += kThreads) {
      const int row = i / runs;
      copy_x_run<kVectors>(x_rows + row * pitch + i % runs * kRunBytes, p, parts, first_sample + row / plan.rows,
                           first_row + row % plan.rows, c0 + i % runs * kRun<T>);
    }
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
    __syncthreads();

    KStep step(warp, channel_blocks);
    for (int first = warp; first < steps; first += kWarps * kBatch) {
      uint4 now[kBatch][S::kColumns];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
#pragma unroll
        for (int j = 0; j < S::kColumns; ++j) now[i][j] = next[i][j];
      }
      load_batch();
#pragma unroll
      for (int i = 0; i < kBatch; ++i, step.advance(kWarps, channel_blocks)) {
        if (step.tap >= p.terms()) break;
        const unsigned char* const x = x_rows + row_of(step.tap) * pitch + step.channel_block * kStepRowBytes;
#pragma unroll
        for (int tile = 0; tile < S::kTiles; ++tile) {
          const auto row_lo = *reinterpret_cast<const uint4*>(x + x_offset[tile][0]);
          const auto row_hi = *reinterpret_cast<const uint4*>(x + x_offset[tile][1]);
#pragma unroll
          for (int j = 0; j < S::kColumns; ++j) multiply_step<T>(sum[tile][j], row_lo, row_hi, now[i][j]);
        }
      }
    }
  }
  ptx::grid_dependency_launch();

  const auto part_of = [&](int of_warp) { return reinterpret_cast<float*>(part_pairs[of_warp]); };
#pragma unroll
  for (int i = 0; i < S::kTiles; ++i) {
#pragma unroll
    for (int j = 0; j < S::kColumns; ++j) put_sums<S::kChannels>(part_of(warp), sum[i][j], 16 * i, 8 * j);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < S::kPositions * S::kChannels; i += kThreads) {
    const int channel = first_channel + i % S::kChannels;
    const int sample = i / S::kChannels / plan.positions_per_sample;
    const int position = first_position + i / S::kChannels % plan.positions_per_sample;
    if (channel >= p.k || sample >= plan.samples || first_sample + sample >= p.n || position >= plan.length) continue;
    const int o = position * plan.phases + phase;
    const int to = ((first_sample + sample) * p.out_l() + o) * p.k + channel;
    float value = bias ? bias[channel] : 0.0f;
    if (residual) value += to_float(residual[to]);
#pragma unroll
    for (int j = 0; j < kWarps; ++j) value += part_of(j)[i];
    y[to] = from_float<T>(value);
  }
}

template <class S>
KernelPlan<Fprop> plan_named(const char* name, const Problem& p) {
  const PositionPlan plan = plan_of<S>(p);
  const int tiles = plan.phases * ceil_div(plan.length, plan.positions_per_sample) * ceil_div(p.n, plan.samples);
  const LaunchConfig config{
      .grid = dim3(static_cast<unsigned>(ceil_div(p.k, S::kChannels)), static_cast<unsigned>(tiles)),
      .block = kThreads,
      .dynamic_smem = std::size_t{1} * plan.samples * plan.rows * x_pitch(plan.channel_blocks),
      .overlaps_previous = true};
  return {.name = name, .bind = [=](const Fprop::Tensors& t, void*) {
            const auto bind = [&]<class T>(T) {
              const auto kernel =
                  whole_rows(p, false) ? conv1d_fprop_v03_kernel<T, true, S> : conv1d_fprop_v03_kernel<T, false, S>;
              return bind_launch(kernel, config, p, plan, XParts<T>(p, t.x, nullptr), static_cast<const T*>(t.w),
                                 t.bias, static_cast<const T*>(t.residual), static_cast<T*>(t.y));
            };
            return p.dtype == Dtype::bf16 ? bind(__nv_bfloat16{}) : bind(__half{});
          }};
}

// Returns all plans. The default is narrow, with the most blocks, if one tile of 16 positions is all; else wide or
// tall, which read the weights once for 32 or 64 positions.
std::vector<KernelPlan<Fprop>> plans(const Problem& p) {
  std::vector<KernelPlan<Fprop>> all = {plan_named<Narrow>("narrow", p), plan_named<Tall>("tall", p),
                                        plan_named<Wide>("wide", p)};
  const int positions = p.n * (p.transposed ? p.l : p.out_l());
  return with_default(std::move(all), positions <= Narrow::kPositions ? 0 : positions <= Wide::kPositions ? 2 : 1);
}

}  // namespace
}  // namespace ladder::conv1d

LADDER_VERSION(ladder::conv1d::Fprop, {.plans = ladder::conv1d::plans,
                                       .plan_names = {"narrow", "tall", "wide"},
                                       .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                       .min_arch = 80})

// Idea:   a block computes some of a stage's channels for all positions: a warp streams an output channel's
//         weights in sixteen bytes a lane, against the stage's whole input in shared memory. Each block makes that
//         input for itself out of the previous stage's sums: statistics, normalisation, Mish, FiLM and residual come
//         while it loads.
// Parent: v01.
// Why:    v01 reads weights in scattered pieces, and waits for the grid twice a stage. Here each weight is read once,
//         in order, and 30 barriers are left. r(x) rides with the first convolution of its res block. Limiter: memory's
//         latency, as no weights are under way while blocks wait for each other and make their inputs.
// Needs:  all blocks resident (a cooperative launch); a stage's input and its sums in an SM's shared memory. Samples
//         come one after the other and read the weights again.

#include <algorithm>

#include "core/graph.h"
#include "core/occupancy.h"
#include "dev/common/lane_sums.h"
#include "dev/common/wide.h"
#include "dev/policy/next_x.h"
#include "dev/policy/stage_input.h"
#include "dev/ptx/grid_barrier.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::policy {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kMaxPositions = 16;  // that a warp sums at a time
constexpr std::size_t kCounterBytes = 256;

// Add a lane's part of an output channel's sums at positions o0 to o0 + kPositions - 1: the row's weight vectors first,
// first + step, ...
template <int kPositions, int kWidth, class T>
__device__ __forceinline__ void sum_row(const conv1d::Problem& conv, const T* row, const T* input, int o0, int first,
                                        int step, float (&sums)[kPositions]) {
  const int vectors = conv.c / kWidth;  // of a tap
#pragma unroll 2
  for (int v = first; v < conv.taps * vectors; v += step) {
    const int tap = v / vectors;
    const int channel = v % vectors * kWidth;
    float w[kWidth];
    to_floats<T, kWidth>(load_wide<kWidth>(row, v), w);
#pragma unroll
    for (int i = 0; i < kPositions; ++i) {
      const int o = o0 + i;
      const int phase = o + 1 - tap;  // transposed convolution: twice the position of the input
      const int from = conv.transposed ? phase / 2 : conv.from(o, tap);
      if (from < 0 || from >= conv.l || (conv.transposed && (phase < 0 || phase % 2 != 0))) continue;
      float x[kWidth];
      to_floats<T, kWidth>(load_wide<kWidth>(input + from * conv.c + channel, 0), x);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sums[i] = fmaf(w[j], x[j], sums[i]);
    }
  }
}

// Compute the block's output channels; one thread calls emit(o, k, sum) for each output. Where there are
// fewer channels than warps, several warps share a channel.
template <int kPositions, int kWidth, class T, class Emit>
__device__ __forceinline__ void convolve(const conv1d::Problem& conv, const T* weights, const T* input, float* partial,
                                         const Emit& emit) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int begin = static_cast<int>(blockIdx.x) * conv.k / static_cast<int>(gridDim.x);
  const int end = (static_cast<int>(blockIdx.x) + 1) * conv.k / static_cast<int>(gridDim.x);
  if (begin == end) return;
  const int parts = max(kWarps / (end - begin), 1);
  const int at_a_time = kWarps / parts;
  const int part = warp % parts;
  for (int o0 = 0; o0 < conv.out_l(); o0 += kPositions) {
    for (int first = begin; first < end; first += at_a_time) {
      const int k = first + warp / parts;
      if (warp / parts < at_a_time && k < end) {
        float sums[kPositions] = {};
        sum_row<kPositions, kWidth>(conv, weights + static_cast<std::int64_t>(k) * conv.taps * conv.c, input, o0,
                                    part * 32 + lane, parts * 32, sums);
        const float sum = sum_over_lanes<kPositions>(sums, lane);
        constexpr int kLanes = 32 / kPositions;  // lanes with the same sum
        if (lane % kLanes == 0) partial[warp * kPositions + lane / kLanes] = sum;
      }
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < at_a_time * kPositions; i += kThreads) {
        const int channel = i / kPositions;
        const int o = i % kPositions;
        if (first + channel >= end || o0 + o >= conv.out_l()) continue;
        float sum = 0;
        for (int j = 0; j < parts; ++j) sum += partial[(channel * parts + j) * kPositions + o];
        emit(o0 + o, first + channel, sum);
      }
      __syncthreads();
    }
  }
}

// Convolve in vectors of 16 bytes if rows are whole vectors, else by single elements.
template <class T, class Emit>
__device__ __forceinline__ void convolve_stage(const conv1d::Problem& conv, const T* weights, const T* input,
                                               float* partial, const Emit& emit) {
  constexpr int kWidth = kVector<T>;
  if (conv.c % kWidth != 0 || reinterpret_cast<std::uintptr_t>(weights) % 16 != 0) {
    convolve<kMaxPositions / 2, 1>(conv, weights, input, partial, emit);
  } else if (conv.out_l() <= kMaxPositions / 4) {
    convolve<kMaxPositions / 4, kWidth>(conv, weights, input, partial, emit);
  } else if (conv.out_l() <= kMaxPositions / 2) {
    convolve<kMaxPositions / 2, kWidth>(conv, weights, input, partial, emit);
  } else {
    convolve<kMaxPositions, kWidth>(conv, weights, input, partial, emit);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    policy_step_v02_kernel(Problem p, const __grid_constant__ Network network, Step::Tensors t, InputSizes sizes,
                           unsigned* counter, Buffers<T> buffers) {
  LADDER_SHARED(float, partial, [kWarps * kMaxPositions]);
  LADDER_DYN_SMEM(smem);
  T* const input = reinterpret_cast<T*>(smem);
  auto* const statistics =
      reinterpret_cast<float2*>(smem + ceil_div(sizes.input * static_cast<int>(sizeof(T)), 16) * 16);
  auto* const h = reinterpret_cast<float*>(statistics + sizes.groups);
  const auto* const weights = static_cast<const T*>(t.weights);
  ptx::GridBarrier barrier(counter);

  ptx::grid_dependency_wait();
  const Pass<T> pass{network, t, buffers, p.n, *t.step};
#pragma unroll 1
  for (int stage_idx = 0; stage_idx < network.count; ++stage_idx) {
    const Stage& stage = network.stages[stage_idx];
    const bool is_last = stage_idx == network.count - 1;
#pragma unroll 1
    for (int sample = 0; sample < p.n; ++sample) {
      make_input<kThreads>(pass, stage_idx, sample, input, h, statistics);
      __syncthreads();

      float* const to = pass.of(buffers.h, stage_idx, sample);
      convolve_stage(stage.convolution(1), weights + stage.weights, input, partial, [&](int o, int k, float sum) {
        const float value = sum + t.vectors[stage.bias + k];
        const int i = o * stage.k + k;
        if (!is_last) {
          to[i] = value;
          return;
        }
        const int x_idx = sample * stage.out_l() * stage.k + i;
        t.x[x_idx] = next_x(t.table[pass.step], t.x[x_idx], value, t.noise[x_idx]);
      });
      const Stage& next = network.stages[min(stage_idx + 1, network.count - 1)];
      if (!is_last && next.residual == Residual::convolution) {
        float* const residual = pass.of(buffers.residual, stage_idx + 1, sample);
        convolve_stage(
            stage.widened(1, next.k), weights + next.residual_weights, input, partial,
            [&](int o, int k, float sum) { residual[o * next.k + k] = sum + t.vectors[next.residual_bias + k]; });
      }
      __syncthreads();  // the input is read
    }
    if (!is_last) barrier.sync();
  }
  ptx::grid_dependency_launch();
}

std::size_t smem_bytes(const Problem& p) {
  const InputSizes sizes = input_sizes(network_of(p));
  const std::size_t input = size_of(p.dtype) * static_cast<std::size_t>(sizes.input);
  return (input + 15) / 16 * 16 + sizeof(float2) * sizes.groups + sizeof(float) * sizes.h;
}

std::vector<KernelPlan<Step>> plans(const Problem& p) {
  const Network network = network_of(p);
  const std::size_t values = static_cast<std::size_t>(p.n) * ceil_div(network.values, 64) * 64;
  const auto bind = [=](const Step::Tensors& t, void* workspace) {
    auto* const counter = static_cast<unsigned*>(workspace);
    auto* const h = reinterpret_cast<float*>(static_cast<char*>(workspace) + kCounterBytes);
    BoundLaunch kernel;
    with_storage_type(p.dtype, [&]<class T>(T) {
      const Buffers<T> buffers{.h = h, .residual = h + values, .values = reinterpret_cast<T*>(h + 2 * values)};
      kernel = bind_launch(policy_step_v02_kernel<T>,
                           {.grid = static_cast<unsigned>(backend::device().num_sms),
                            .block = kThreads,
                            .dynamic_smem = smem_bytes(p),
                            .overlaps_previous = true,
                            .cooperative = true},
                           p, network, t, input_sizes(network), counter, buffers);
    });
    return in_order({[=](Stream stream) { set_bytes_async(counter, 0, sizeof(unsigned), stream); }, kernel});
  };
  return {{.name = "a warp a channel",
           .workspace_bytes = kCounterBytes + values * (2 * sizeof(float) + size_of(p.dtype)),
           .bind = bind}};
}

const char* supports(const Problem& p) {
  constexpr std::size_t kStatic = 1024;
  return smem_bytes(p) + kStatic <= static_cast<std::size_t>(most_smem_bytes())
             ? nullptr
             : "a stage's input and its sums must fit an SM's shared memory";
}

}  // namespace
}  // namespace ladder::policy

LADDER_VERSION(ladder::policy::Step, {.plans = ladder::policy::plans,
                                      .plan_names = {"a warp a channel"},
                                      .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                      .supports = ladder::policy::supports})

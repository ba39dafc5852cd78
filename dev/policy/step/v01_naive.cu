// Idea:   one persistent kernel walks through the network: a thread an element of each convolution's output, straight
//         from the formula; then a warp a sample and group, which normalises it. A barrier of the whole grid after each
//         of the two.
// Parent: none.
// Why:    it is the definition, in one launch. Limiter: the weights, which a warp reads an element of each of 32
//         channels at a time, far apart; and some 55 barriers, each of which waits for memory.
// Needs:  all blocks resident (a cooperative launch).

#include <algorithm>

#include "core/graph.h"
#include "core/numeric.h"
#include "dev/common/activation.h"
#include "dev/common/lane_sums.h"
#include "dev/common/wide.h"
#include "dev/conv1d/one_output.h"
#include "dev/policy/next_x.h"
#include "dev/policy/values.h"
#include "dev/ptx/grid_barrier.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::policy {
namespace {

constexpr int kThreads = 64;
constexpr std::size_t kCounterBytes = 256;

struct Workspace {
  unsigned* counter;
  float* h;      // [n, out_l, k]: convolution of the current stage
  void* values;  // of all stages, then x rounded; of type T
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    policy_step_v01_kernel(Problem p, const __grid_constant__ Network network, Step::Tensors t, Workspace workspace) {
  const auto* const weights = static_cast<const T*>(t.weights);
  auto* const values = static_cast<T*>(workspace.values);
  T* const sample = values + static_cast<std::int64_t>(p.n) * network.values;
  const int thread = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(gridDim.x) * kThreads;
  const int lane = thread % 32;
  ptx::GridBarrier barrier(workspace.counter);

  ptx::grid_dependency_wait();
  const int step = *t.step;
  for (int i = thread; i < p.n * p.l * p.d; i += threads) sample[i] = from_float<T>(t.x[i]);
  barrier.sync();

#pragma unroll 1
  for (int stage_idx = 0; stage_idx < network.count; ++stage_idx) {
    const Stage& stage = network.stages[stage_idx];
    const conv1d::Problem conv = stage.convolution(p.n);
    const Input<T> input = input_of(network, stage, p.n, sample, values);
    T* const value = values + static_cast<std::int64_t>(p.n) * stage.value;
    const int length = conv.out_l();
    const int channels = stage.k;

    // Convolve. The last stage's output is the network's, from which the scheduler makes the next x.
    for (int i = thread; i < p.n * length * channels; i += threads) {
      const int k = i % channels;
      const float h = t.vectors[stage.bias + k] + conv1d::one_output(conv, input.x, input.x_rest, input.split,
                                                                     weights + stage.weights, i / channels / length,
                                                                     i / channels % length, k);
      if (stage_idx == network.count - 1) {
        t.x[i] = next_x(t.table[step], t.x[i], h, t.noise[i]);
      } else if (stage.groups == 0) {
        value[i] = from_float<T>(h);
      } else {
        workspace.h[i] = h;
      }
    }
    barrier.sync();
    if (stage.groups == 0) continue;

    // Normalise h, apply Mish and FiLM and add the residual: the stage's value.
    const Stage& before = network.stages[max(stage_idx - 1, 0)];
    const Input<T> skipped = input_of(network, before, p.n, sample, values);
    const int width = channels / stage.groups;
    const int count = width * length;
    for (int group = thread / 32; group < p.n * stage.groups; group += threads / 32) {
      const int n = group / stage.groups;
      const int k0 = group % stage.groups * width;
      const auto offset_of = [&](int i) { return (n * length + i / width) * channels + k0 + i % width; };
      float sum = 0;
      for (int i = lane; i < count; i += 32) sum += workspace.h[offset_of(i)];
      const float mean = sum_over_lanes(sum) / static_cast<float>(count);
      float squares = 0;
      for (int i = lane; i < count; i += 32) {
        const float deviation = workspace.h[offset_of(i)] - mean;
        squares += deviation * deviation;
      }
      const float rstd = 1.0f / sqrtf(sum_over_lanes(squares) / static_cast<float>(count) + conv1d::kEpsilon);

      for (int i = lane; i < count; i += 32) {
        const int k = k0 + i % width;
        const float xhat = (workspace.h[offset_of(i)] - mean) * rstd;
        float v = Mish::value(fmaf(t.vectors[stage.gamma() + k], xhat, t.vectors[stage.beta() + k]));
        if (stage.film != kNone) {
          v = fmaf(film_at(network, t, step, n, stage.film + k), v,
                   film_at(network, t, step, n, stage.film + channels + k));
        }
        if (stage.residual == Residual::identity) v += skipped.load(n * length + i / width, k);
        if (stage.residual == Residual::convolution) {
          v += t.vectors[stage.residual_bias + k] +
               conv1d::one_output(before.widened(p.n, channels), skipped.x, skipped.x_rest, skipped.split,
                                  weights + stage.residual_weights, n, i / width, k);
        }
        value[offset_of(i)] = from_float<T>(v);
      }
    }
    barrier.sync();
  }
  ptx::grid_dependency_launch();
}

// Elements of the largest convolution.
int most_outputs(const Problem& p, const Network& network) {
  int most = 0;
  for (int i = 0; i < network.count; ++i) {
    most = std::max(most, p.n * network.stages[i].out_l() * network.stages[i].k);
  }
  return most;
}

std::vector<KernelPlan<Step>> plans(const Problem& p) {
  const Network network = network_of(p);
  const int most = most_outputs(p, network);
  const std::size_t h_bytes = sizeof(float) * ceil_div(most, 64) * 64;
  const std::size_t value_bytes =
      size_of(p.dtype) * (static_cast<std::size_t>(p.n) * network.values + static_cast<std::size_t>(p.elements()));
  const auto bind = [=](const Step::Tensors& t, void* workspace) {
    auto* const bytes = static_cast<char*>(workspace);
    const Workspace parts{.counter = static_cast<unsigned*>(workspace),
                          .h = reinterpret_cast<float*>(bytes + kCounterBytes),
                          .values = bytes + kCounterBytes + h_bytes};
    BoundLaunch kernel;
    with_storage_type(p.dtype, [&]<class T>(T) {
      kernel =
          bind_launch(policy_step_v01_kernel<T>,
                      {.grid = static_cast<unsigned>(std::min(backend::device().num_sms, ceil_div(most, kThreads))),
                       .block = kThreads,
                       .overlaps_previous = true,
                       .cooperative = true},
                      p, network, t, parts);
    });
    return in_order(
        {[counter = parts.counter](Stream stream) { set_bytes_async(counter, 0, sizeof(unsigned), stream); }, kernel});
  };
  return {{.name = "a thread an element", .workspace_bytes = kCounterBytes + h_bytes + value_bytes, .bind = bind}};
}

}  // namespace
}  // namespace ladder::policy

LADDER_VERSION(ladder::policy::Step, {.plans = ladder::policy::plans,
                                      .plan_names = {"a thread an element"},
                                      .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})

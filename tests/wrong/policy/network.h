// The network of policy once more, a launch a stage and part of it, with faults of its own: each is caught for its own sake,
// as the same network without any is right.
#pragma once

#include "dev/common/activation.h"
#include "dev/policy/layout.h"
#include "dev/policy/next_x.h"
#include "tests/wrong/wrong.h"

namespace ladder::policy {

struct Faults {
  bool film_first = false;        // scaled and shifted before the normalisation
  bool no_identity = false;       // where the number of channels stays, nothing is added
  bool no_residual_conv = false;  // where it changes
  bool length_only = false;       // statistics of each channel over its positions
  bool no_mish = false;           // in the last block
  bool groups_of_last = false;    // the last block has the problem's groups
};

struct Sources {
  const void* x;
  const void* x_rest;  // or null
};

// Element i of a convolution with its bias.
struct Convolve {
  conv1d::Problem conv;
  int weights;
  int bias;
  Sources from;
  float* h;

  __device__ void operator()(const auto& v, long long i) const {
    const int k = static_cast<int>(i % conv.k);
    const int o = static_cast<int>(i / conv.k % conv.out_l());
    const long long n = i / conv.k / conv.out_l();
    const int x_channels = conv.split > 0 ? conv.split : conv.c;
    float sum = v.t.vectors[bias + k];
    for (int j = 0; j < conv.terms(); ++j) {
      const int at = conv.from(o, j);
      if (at < 0 || at >= conv.l) continue;
      const long long row = n * conv.l + at;
      const long long w_row = weights + (static_cast<long long>(k) * conv.taps + conv.tap(o, j)) * conv.c;
      for (int c = 0; c < conv.c; ++c) {
        const float x = c < x_channels ? v.load(from.x, row * x_channels + c)
                                       : v.load(from.x_rest, row * (conv.c - x_channels) + c - x_channels);
        sum += x * v.load(v.t.weights, w_row + c);
      }
    }
    h[i] = sum;
  }
};

// Element i of a stage's value.
template <Faults kFaults>
struct Finish {
  Stage stage;
  int film_row;
  bool last_block;
  const float* h;
  const float* residual;  // or null
  const void* identity;   // or null
  void* value;

  __device__ float film(const auto& v, long long n, int column) const {
    return v.t.film_table[*v.t.step * film_row + column] + v.t.film[n * film_row + column];
  }

  __device__ float modulated(const auto& v, long long n, int k, float u) const {
    if (stage.film == kNone) return u;
    return film(v, n, stage.film + k) * u + film(v, n, stage.film + stage.k + k);
  }

  __device__ float normalised(const auto& v, long long n, int k, float element) const {
    const int width = kFaults.length_only ? 1 : stage.k / stage.groups;
    const int length = stage.out_l();
    const auto over_group = [&](auto body) {
      for (int o = 0; o < length; ++o) {
        for (int c = k / width * width; c < k / width * width + width; ++c) {
          const float u = h[(n * length + o) * stage.k + c];
          body(kFaults.film_first ? modulated(v, n, c, u) : u);
        }
      }
    };
    const auto count = static_cast<float>(width * length);
    float mean = 0;
    float variance = 0;
    over_group([&](float u) { mean += u / count; });
    over_group([&](float u) { variance += (u - mean) * (u - mean) / count; });
    const float xhat = (element - mean) / sqrtf(variance + conv1d::kEpsilon);
    const float z = v.t.vectors[stage.gamma() + k] * xhat + v.t.vectors[stage.beta() + k];
    return kFaults.no_mish && last_block ? z : Mish::value(z);
  }

  __device__ void operator()(const auto& v, long long i) const {
    const int k = static_cast<int>(i % stage.k);
    const long long n = i / stage.k / stage.out_l();
    float u = h[i];
    if (stage.groups > 0) {
      u = normalised(v, n, k, kFaults.film_first ? modulated(v, n, k, u) : u);
      if (!kFaults.film_first) u = modulated(v, n, k, u);
    }
    if (residual && !kFaults.no_residual_conv) u += residual[i];
    if (identity && !kFaults.no_identity) u += v.load(identity, i);
    v.store(value, i, u);
  }
};

struct RoundSample {
  void* sample;
  __device__ void operator()(const auto& v, long long i) const { v.store(sample, i, v.t.x[i]); }
};

struct Advance {
  const float* out;
  __device__ void operator()(const auto& v, long long i) const {
    v.t.x[i] = next_x(v.t.table[*v.t.step], v.t.x[i], out[i], v.t.noise[i]);
  }
};

// Needs no more workspace than the first version, whose h is one of two here: the other lies in the copies' room.
template <Faults kFaults>
void run_network(const Problem& p, const Step::Tensors& t, void* workspace, Stream stream) {
  const Network network = network_of(p);
  const auto bytes = static_cast<std::int64_t>(size_of(p.dtype));
  auto* const values = static_cast<char*>(workspace);
  char* const sample = values + p.n * network.values * bytes;
  auto* const h = static_cast<float*>(wrong::room_for_copies<Step>(p, workspace));
  const auto value_of = [&](int at) {
    return at == kSample ? sample : values + p.n * network.stages[at].value * bytes;
  };
  const auto sources = [&](const Stage& s) {
    return Sources{value_of(s.source), s.joined > 0 ? value_of(s.joined_stage) : nullptr};
  };
  const auto launch_elements = [&](std::int64_t count, const auto& functor) {
    wrong::launch_each<Step>(p, t, stream, count, functor);
  };
  launch_elements(p.elements(), RoundSample{sample});
  for (int at = 0; at < network.count; ++at) {
    Stage stage = network.stages[at];
    const std::int64_t count = std::int64_t{p.n} * stage.out_l() * stage.k;
    launch_elements(count, Convolve{stage.convolution(p.n), stage.weights, stage.bias, sources(stage), h});
    if (at == network.count - 1) return launch_elements(count, Advance{h});
    const bool last_block = at == network.count - 2;
    if (kFaults.groups_of_last && last_block) stage.groups = p.groups;
    float* const residual = h + count;
    const Stage& before = network.stages[std::max(at - 1, 0)];
    const bool widens = stage.residual == Residual::convolution;
    if (widens) {
      launch_elements(count, Convolve{before.widened(p.n, stage.k), stage.residual_weights, stage.residual_bias,
                                      sources(before), residual});
    }
    launch_elements(
        count, Finish<kFaults>{.stage = stage,
                               .film_row = network.film_row,
                               .last_block = last_block,
                               .h = h,
                               .residual = widens ? residual : nullptr,
                               .identity = stage.residual == Residual::identity ? value_of(before.source) : nullptr,
                               .value = value_of(at)});
  }
}

}  // namespace ladder::policy

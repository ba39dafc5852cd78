// The reference of policy: the network and the scheduler's step in double precision.
//
// Magnitudes. The effect of rounding a stage's value on the network's answer is no sum of terms in closed form, so it
// is measured. The network runs once exactly, and kTrials times more with each value that a version may store (a
// convolution's output, a residual, a stage's value) changed at random by up to the unit roundoff u of the problem's
// dtype. An element's gain is the root mean square of its change over all trials, divided by u: about the error, in
// units of u, of a version that rounds as much as it may, since rounding to nearest has the same spread. Elements
// differ: one column of the last convolution may be several times as sensitive as the others. Few trials may miss a
// gain, so no gain counts as less than that of the whole sample. compare() allows u, and in fp32 more, times the
// magnitude. The answer's magnitude is |out| + 4 gain: four standard deviations. A network that lacks a part, or takes
// a wrong row of FiLM, is off by a fraction of the answer instead: tests/wrong/policy has such networks.
#include <algorithm>
#include <cmath>

#include "core/check/check.h"
#include "core/parallel.h"
#include "core/splitmix64.h"
#include "dev/policy/layout.h"
#include "reference/activation.h"

namespace ladder::policy {
namespace {

constexpr int kTrials = 8;
constexpr double kDeviations = 4;

using Values = std::vector<double>;

// Storage of a value: exact in trial 0, else changed at random by a relative error of up to `roundoff`.
struct Storage {
  int trial;
  double roundoff;

  // `value_idx` is the value's number among all stored values of the network.
  double operator()(double value, std::int64_t value_idx) const {
    if (trial == 0) return value;
    const std::uint64_t bits =
        splitmix64_mix((static_cast<std::uint64_t>(value_idx) * kTrials + trial) * kSplitmixGamma);
    return value * (1 + roundoff * (static_cast<double>(bits >> 11) * 0x1p-52 - 1));
  }
};

class Forward {
 public:
  Forward(const Problem& p, const HostTensors& in, Storage storage)
      : p_(p), in_(in), network_(network_of(p)), storage_(storage), values_(network_.count) {}

  // Returns the network's answer, [n, l, d].
  Values answer() {
    for (float x : in_["x"]) sample_.push_back(round_to(p_.dtype, x));
    for (int stage_idx = 0; stage_idx < network_.count; ++stage_idx) {
      const Stage& stage = network_.stages[stage_idx];
      Values& v = values_[stage_idx];
      v = convolve(stage.convolution(p_.n), input_of(stage), stage.weights, stage.bias);
      if (stage_idx == network_.count - 1) break;
      if (stage.groups > 0) {
        store(v);
        normalise(stage, v);
        if (stage.film != kNone) modulate(stage, v);
        add_residual(stage_idx, v);
      }
      store(v);
    }
    return values_.back();
  }

 private:
  void store(Values& values) {
    for (double& value : values) value = storage_(value, num_stored_++);
  }

  // Input of a stage, [n, l, c], with the two parts of a concatenation joined.
  Values input_of(const Stage& stage) const {
    const Values& x = stage.source == kSample ? sample_ : values_[stage.source];
    if (stage.joined == 0) return x;
    const Values& skip = values_[stage.joined_stage];
    Values joined;
    const std::int64_t x_channels = stage.c - stage.joined;
    for (std::int64_t row = 0; row < std::int64_t{p_.n} * stage.l; ++row) {
      joined.insert(joined.end(), x.begin() + row * x_channels, x.begin() + (row + 1) * x_channels);
      joined.insert(joined.end(), skip.begin() + row * stage.joined, skip.begin() + (row + 1) * stage.joined);
    }
    return joined;
  }

  // Convolution plus bias, [n, out_l, k].
  Values convolve(const conv1d::Problem& conv, const Values& x, std::int64_t weights, std::int64_t bias) const {
    const float* const w = in_["weights"].data() + weights;
    Values h(std::int64_t{conv.n} * conv.out_l() * conv.k);
    parallel_for(std::ssize(h), 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t k = i % conv.k;
        const int o = static_cast<int>(i / conv.k % conv.out_l());
        const std::int64_t n = i / conv.k / conv.out_l();
        double sum = in_["vectors"][bias + k];
        for (int j = 0; j < conv.terms(); ++j) {
          const int from = conv.from(o, j);
          if (from < 0 || from >= conv.l) continue;
          const double* const x_row = &x[(n * conv.l + from) * conv.c];
          const float* const w_row = w + (k * conv.taps + conv.tap(o, j)) * conv.c;
          for (int c = 0; c < conv.c; ++c) sum += x_row[c] * w_row[c];
        }
        h[i] = sum;
      }
    });
    return h;
  }

  // GroupNorm and Mish.
  void normalise(const Stage& stage, Values& v) const {
    const std::vector<float>& vectors = in_["vectors"];
    const int width = stage.k / stage.groups;
    for (std::int64_t group = 0; group < std::int64_t{p_.n} * stage.groups; ++group) {
      const std::int64_t n = group / stage.groups;
      const int k0 = static_cast<int>(group % stage.groups) * width;
      const auto for_each = [&](const auto& body) {
        for (int o = 0; o < stage.out_l(); ++o) {
          for (int k = k0; k < k0 + width; ++k) body(v[(n * stage.out_l() + o) * stage.k + k], k);
        }
      };
      const double count = double(width) * stage.out_l();
      double mean = 0;
      double variance = 0;
      for_each([&](double h, int) { mean += h / count; });
      for_each([&](double h, int) { variance += (h - mean) * (h - mean) / count; });
      for_each([&](double& h, int k) {
        const double xhat = (h - mean) / std::sqrt(variance + double{conv1d::kEpsilon});
        h = reference::value(Activation::mish, vectors[stage.gamma() + k] * xhat + vectors[stage.beta() + k]);
      });
    }
  }

  void modulate(const Stage& stage, Values& v) const {
    const std::int64_t row = static_cast<std::int64_t>(in_["step"][0]) * network_.film_row;
    for (std::int64_t i = 0; i < std::ssize(v); ++i) {
      const std::int64_t n = i / stage.k / stage.out_l();
      const auto film = [&](std::int64_t column) {
        return double{in_["film_table"][row + column]} + in_["film"][n * network_.film_row + column];
      };
      v[i] = film(stage.film + i % stage.k) * v[i] + film(stage.film + stage.k + i % stage.k);
    }
  }

  void add_residual(int stage_idx, Values& v) {
    const Stage& stage = network_.stages[stage_idx];
    if (stage.residual == Residual::none) return;
    const Stage& before = network_.stages[stage_idx - 1];
    Values r = input_of(before);
    if (stage.residual == Residual::convolution) {
      r = convolve(before.widened(p_.n, stage.k), r, stage.residual_weights, stage.residual_bias);
      store(r);
    }
    for (std::int64_t i = 0; i < std::ssize(v); ++i) v[i] += r[i];
  }

  const Problem& p_;
  const HostTensors& in_;
  const Network network_;
  const Storage storage_;
  Values sample_;
  std::vector<Values> values_;
  std::int64_t num_stored_ = 0;
};

// Gain of each element of the answer, [n, l, d]: its change when stored values change by a unit roundoff, in unit
// roundoffs.
Values gains_of(const Problem& p, const HostTensors& in, const Values& out) {
  const double roundoff = unit_roundoff(p.dtype);
  const std::size_t of_sample = out.size() / p.n;
  Values gains(out.size()), sample_gains(p.n);  // means of squares at first
  for (int trial = 1; trial <= kTrials; ++trial) {
    const Values moved = Forward(p, in, {.trial = trial, .roundoff = roundoff}).answer();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double square = (moved[i] - out[i]) * (moved[i] - out[i]) / kTrials;
      gains[i] += square;
      sample_gains[i / of_sample] += square / static_cast<double>(of_sample);
    }
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    gains[i] = std::sqrt(std::max(gains[i], sample_gains[i / of_sample])) / roundoff;
  }
  return gains;
}

NamedOutputs step(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<Step>(c);
  diffusion::StepCoefficients s{};
  const float* const row = &in["table"][static_cast<std::size_t>(in["step"][0]) * diffusion::kStepColumns];
  std::copy(row, row + diffusion::kStepColumns, reinterpret_cast<float*>(&s));

  const Values out = Forward(p, in, {.trial = 0, .roundoff = 0}).answer();
  const Values gains = gains_of(p, in, out);
  Expected x{.value = Values(out.size()), .magnitude = Values(out.size())};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double before = in["x"][i];
    const double noise = in["noise"][i];
    const double clip = s.clip;
    const double x0 = std::clamp((s.x_scale * before - s.pred_scale * out[i]) * s.x0_scale, -clip, clip);
    const double out_magnitude = std::abs(out[i]) + kDeviations * gains[i];
    x.value[i] = s.x0_weight * x0 + s.x_weight * before + s.pred_weight * out[i] + s.sigma * noise;
    const double terms = std::abs(s.x_scale * before) + std::abs(s.pred_scale) * out_magnitude;
    x.magnitude[i] = std::abs(s.x0_weight * s.x0_scale) * terms + std::abs(s.x_weight * before) +
                     std::abs(s.pred_weight) * out_magnitude + std::abs(s.sigma * noise);
  }
  return {{"x", std::move(x)}};
}

}  // namespace
}  // namespace ladder::policy

// No outliers: the bound is four deviations of a sum of many rounding errors, and after an outlier one of them
// dominates.
LADDER_OUTLIERS(ladder::policy::Step, {.largest = 0})
LADDER_REFERENCE(ladder::policy::Step, ladder::policy::step)

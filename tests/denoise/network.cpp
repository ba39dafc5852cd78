#include "tests/denoise/network.h"

#include <cmath>
#include <string>

#include <fmt/format.h>

namespace ladder::denoise::test {
namespace {

using Vector = std::vector<double>;
// [channels][positions], as PyTorch has it.
using Sequence = std::vector<Vector>;

double mish(double x) { return x * std::tanh(std::log1p(std::exp(x))); }

class Network {
 public:
  Network(const nn::Unet1dConfig& config, const nn::PublishedWeights& weights) : config_(config), weights_(weights) {}

  Sequence run(Sequence x, int t, const std::vector<float>& observation) {
    condition_ = embedding(t);
    condition_.insert(condition_.end(), observation.begin(), observation.end());
    for (double& value : condition_) value = mish(value);
    std::vector<Sequence> skips;
    const int levels = config_.levels();
    for (int i = 0; i < levels; ++i) {
      x = blocks(fmt::format("down_modules.{}", i), x);
      skips.push_back(x);
      if (i + 1 < levels) x = conv(fmt::format("down_modules.{}.2.conv", i), x, 1, 2);
    }
    x = blocks("mid_modules", x);
    for (int i = 0; i + 1 < levels; ++i) {
      x.insert(x.end(), skips.back().begin(), skips.back().end());
      skips.pop_back();
      x = transposed(fmt::format("up_modules.{}.2.conv", i), blocks(fmt::format("up_modules.{}", i), x));
    }
    return conv("final_conv.1", block("final_conv.0", x, 8), 0, 1);
  }

 private:
  const std::vector<float>& tensor(const std::string& name) const { return weights_.find(name)->second; }

  Vector linear(const std::string& name, const Vector& x) const {
    const auto &w = tensor(name + ".weight"), &b = tensor(name + ".bias");
    Vector y(b.begin(), b.end());
    for (std::size_t i = 0; i < y.size(); ++i) {
      for (std::size_t j = 0; j < x.size(); ++j) y[i] += double{w[i * x.size() + j]} * x[j];
    }
    return y;
  }

  Vector embedding(int t) const {
    const int half = config_.step_channels / 2;
    Vector e(2 * half);
    for (int i = 0; i < half; ++i) {
      const double angle = t * std::pow(10000.0, -double(i) / (half - 1));
      e[i] = std::sin(angle);
      e[half + i] = std::cos(angle);
    }
    e = linear("diffusion_step_encoder.1", e);
    for (double& value : e) value = mish(value);
    return linear("diffusion_step_encoder.3", e);
  }

  Sequence conv(const std::string& name, const Sequence& x, int padding, int stride) const {
    const auto &w = tensor(name + ".weight"), &b = tensor(name + ".bias");
    const int in = static_cast<int>(x.size()), length = static_cast<int>(x[0].size()), out = static_cast<int>(b.size());
    const int taps = static_cast<int>(w.size()) / (in * out);
    Sequence y(out, Vector((length + 2 * padding - taps) / stride + 1));
    for (int k = 0; k < out; ++k) {
      for (std::size_t o = 0; o < y[k].size(); ++o) {
        double sum = b[k];
        for (int c = 0; c < in; ++c) {
          for (int tap = 0; tap < taps; ++tap) {
            const int from = static_cast<int>(o) * stride + tap - padding;
            if (from >= 0 && from < length) sum += double{w[(k * in + c) * taps + tap]} * x[c][from];
          }
        }
        y[k][o] = sum;
      }
    }
    return y;
  }

  // Each input scatters what it adds: kernel 4, stride 2, padding 1.
  Sequence transposed(const std::string& name, const Sequence& x) const {
    const auto &w = tensor(name + ".weight"), &b = tensor(name + ".bias");
    const int in = static_cast<int>(x.size()), length = static_cast<int>(x[0].size()), out = static_cast<int>(b.size());
    Sequence y;
    for (int k = 0; k < out; ++k) y.emplace_back(2 * length, b[k]);
    for (int c = 0; c < in; ++c) {
      for (int i = 0; i < length; ++i) {
        for (int tap = 0; tap < 4; ++tap) {
          const int o = 2 * i + tap - 1;
          if (o < 0 || o >= 2 * length) continue;
          for (int k = 0; k < out; ++k) y[k][o] += double{w[(c * out + k) * 4 + tap]} * x[c][i];
        }
      }
    }
    return y;
  }

  Sequence block(const std::string& name, const Sequence& x, int groups) const {
    Sequence y = conv(name + ".block.0", x, config_.taps / 2, 1);
    const auto &gamma = tensor(name + ".block.1.weight"), &beta = tensor(name + ".block.1.bias");
    const std::size_t channels = y.size() / groups;
    for (std::size_t first = 0; first < y.size(); first += channels) {
      double sum = 0, squares = 0;
      const double count = static_cast<double>(channels * y[0].size());
      for (std::size_t k = first; k < first + channels; ++k) {
        for (const double value : y[k]) sum += value;
      }
      for (std::size_t k = first; k < first + channels; ++k) {
        for (const double value : y[k]) squares += (value - sum / count) * (value - sum / count);
      }
      const double root = std::sqrt(squares / count + 1e-5);
      for (std::size_t k = first; k < first + channels; ++k) {
        for (double& value : y[k]) value = mish((value - sum / count) / root * gamma[k] + beta[k]);
      }
    }
    return y;
  }

  Sequence blocks(const std::string& level, const Sequence& x) const {
    return residual_block(level + ".1", residual_block(level + ".0", x));
  }

  Sequence residual_block(const std::string& name, const Sequence& x) const {
    Sequence h = block(name + ".blocks.0", x, config_.groups);
    const Vector film = linear(name + ".cond_encoder.1", condition_);
    for (std::size_t k = 0; k < h.size(); ++k) {
      for (double& value : h[k]) {
        value = config_.scale ? film[k] * value + film[h.size() + k] : value + film[k];
      }
    }
    h = block(name + ".blocks.1", h, config_.groups);
    const bool projects = weights_.contains(name + ".residual_conv.weight");
    const Sequence r = projects ? conv(name + ".residual_conv", x, 0, 1) : x;
    for (std::size_t k = 0; k < h.size(); ++k) {
      for (std::size_t o = 0; o < h[k].size(); ++o) h[k][o] += r[k][o];
    }
    return h;
  }

  const nn::Unet1dConfig& config_;
  const nn::PublishedWeights& weights_;
  Vector condition_;
};

}  // namespace

std::vector<double> predicted(const nn::Unet1dConfig& config, const nn::PublishedWeights& weights,
                              const std::vector<double>& x, int t, const std::vector<float>& observation) {
  Sequence channels(config.action_dim, Vector(config.horizon));
  for (std::size_t i = 0; i < x.size(); ++i) channels[i % config.action_dim][i / config.action_dim] = x[i];
  const Sequence y = Network(config, weights).run(channels, t, observation);
  std::vector<double> predicted(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) predicted[i] = y[i % config.action_dim][i / config.action_dim];
  return predicted;
}

}  // namespace ladder::denoise::test

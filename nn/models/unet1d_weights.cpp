#include "nn/models/unet1d_weights.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "core/error.h"
#include "core/parallel.h"
#include "core/splitmix64.h"
#include "nn/models/unet1d.h"
#include "nn/models/unet1d_layers.h"

namespace ladder::nn {
namespace {

using Kind = PublishedTensor::Kind;

class Published {
 public:
  std::vector<PublishedTensor> all;

  void layer(const std::string& name, std::vector<std::int64_t> shape, Kind kind) {
    const bool transposed = kind == Kind::transposed;
    const std::int64_t out = shape[transposed ? 1 : 0];
    // PyTorch takes fan_in from the second dimension, which for a transposed convolution is the outputs.
    const std::int64_t fan_in = std::accumulate(shape.begin() + 1, shape.end(), std::int64_t{1}, std::multiplies<>());
    all.push_back({.name = name + ".weight", .shape = std::move(shape), .kind = kind, .fan_in = fan_in});
    all.push_back({.name = name + ".bias", .shape = {out}, .kind = Kind::bias, .fan_in = fan_in});
  }

  void block(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t taps) {
    layer(name + ".block.0", {out, in, taps}, Kind::conv);
    all.push_back({.name = name + ".block.1.weight", .shape = {out}, .kind = Kind::gamma});
    all.push_back({.name = name + ".block.1.bias", .shape = {out}, .kind = Kind::beta});
  }

  void level(const Unet1dConfig& config, const Level1d& level, Kind resample) {
    for (const ResidualBlock1d& residual : level.blocks) {
      block(residual.name + ".blocks.0", residual.in, residual.out, config.taps);
      block(residual.name + ".blocks.1", residual.out, residual.out, config.taps);
      layer(residual.name + ".cond_encoder.1", {config.film_rows(residual.out), config.condition()}, Kind::linear);
      if (residual.projects()) layer(residual.name + ".residual_conv", {residual.out, residual.in, 1}, Kind::conv);
    }
    if (level.resample.empty()) return;
    const std::int64_t taps = resample == Kind::transposed ? kDoublingTaps : kHalvingTaps;
    layer(level.resample, {level.out(), level.out(), taps}, resample);
  }
};

// y = W[:, :x.size()] x + b for W [rows, columns], summed in double. An empty b is zero.
std::vector<double> product(std::span<const float> w, std::int64_t columns, std::span<const float> b,
                            const std::vector<double>& x) {
  const auto rows = static_cast<std::int64_t>(w.size()) / columns;
  std::vector<double> y(rows, 0.0);
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* const row = w.data() + i * columns;
    double sum = b.empty() ? 0.0 : b[i];
    for (std::size_t j = 0; j < x.size(); ++j) sum += row[j] * x[j];
    y[i] = sum;
  }
  return y;
}

void apply_mish(std::vector<double>& values) {
  for (double& value : values) value = mish(value);
}

// [sin, cos](t exp(-ln(10000) i / (half - 1)))
std::vector<double> sinusoids(int t, int channels) {
  const int half = channels / 2;
  std::vector<double> values(channels);
  for (int i = 0; i < half; ++i) {
    const double angle = t * std::exp(-std::log(10000.0) * i / (half - 1));
    values[i] = std::sin(angle);
    values[half + i] = std::cos(angle);
  }
  return values;
}

}  // namespace

std::int64_t PublishedTensor::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<PublishedTensor> published_tensors(const Unet1dConfig& config) {
  const Unet1dLayers layers(config);
  Published published;
  published.level(config, layers.middle, Kind::conv);
  const std::int64_t narrow = config.step_channels;
  published.layer("diffusion_step_encoder.1", {4 * narrow, narrow}, Kind::linear);
  published.layer("diffusion_step_encoder.3", {narrow, 4 * narrow}, Kind::linear);
  for (const Level1d& level : layers.up) published.level(config, level, Kind::transposed);
  for (const Level1d& level : layers.down) published.level(config, level, Kind::conv);
  const std::int64_t last = config.dims.front();
  published.block("final_conv.0", last, last, config.taps);
  published.layer("final_conv.1", {config.action_dim, last, 1}, Kind::conv);
  return std::move(published.all);
}

PublishedWeights made_up_weights(const Unet1dConfig& config) {
  PublishedWeights weights;
  std::uint64_t number = 0;
  for (const PublishedTensor& tensor : published_tensors(config)) {
    std::vector<float>& values = weights[tensor.name];
    values.resize(tensor.elements());
    const double root = std::sqrt(static_cast<double>(tensor.fan_in));
    for (std::uint64_t j = 0; j < values.size(); ++j) {
      const double signed_unit = 2 * (static_cast<double>(splitmix64((number << 32) + j) >> 40) * 0x1p-24) - 1;
      const double quarter = 0.25 * signed_unit;
      values[j] = static_cast<float>(tensor.kind == Kind::gamma  ? 1 + quarter
                                     : tensor.kind == Kind::beta ? quarter
                                                                 : signed_unit / root);
    }
    ++number;
  }
  return weights;
}

// tanh(log(1 + e)) = q / (q + 2) with e = exp(x), q = e (e + 2): one function of the library, not three. From 42 on the quotient
// is 1 in double.
double mish(double x) {
  const double e = std::exp(std::min(x, 42.0));
  const double q = e * (e + 2);
  return x * (q / (q + 2));
}

void pack_conv(const std::vector<float>& in, const std::vector<std::int64_t>& shape, bool transposed,
               std::int64_t first, std::int64_t channels, float* out) {
  const std::int64_t num_out = shape[transposed ? 1 : 0], num_in = shape[transposed ? 0 : 1], taps = shape[2];
  for (std::int64_t k = 0; k < num_out; ++k) {
    for (std::int64_t t = 0; t < taps; ++t) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::int64_t from = transposed ? (first + c) * num_out + k : k * num_in + first + c;
        *out++ = in[from * taps + t];
      }
    }
  }
}

std::vector<float> packed_weights(const Unet1dConfig& config, const Parameters& parameters,
                                  const PublishedWeights& weights) {
  std::map<std::string, PublishedTensor, std::less<>> published;
  for (PublishedTensor& tensor : published_tensors(config)) published.emplace(tensor.name, std::move(tensor));
  std::vector<float> flat(parameters.size(), 0.0f);
  for (const Parameter& p : parameters.all()) {
    const bool is_of_skip = p.name.ends_with(kOfSkip);
    const std::string name = is_of_skip ? p.name.substr(0, p.name.size() - std::string_view(kOfSkip).size()) : p.name;
    const PublishedTensor& tensor = published.at(name);
    const std::vector<float>& from = weights.at(name);
    LADDER_CHECK(static_cast<std::int64_t>(from.size()) == tensor.elements(), name);
    float* const to = flat.data() + p.begin;
    if (tensor.kind == Kind::conv || tensor.kind == Kind::transposed) {
      const std::int64_t first = is_of_skip ? tensor.shape[1] - p.shape[1] : 0;
      pack_conv(from, tensor.shape, tensor.kind == Kind::transposed, first, p.shape[1], to);
    } else if (tensor.kind == Kind::linear) {  // the observation's columns
      for (std::int64_t row = 0; row < p.shape[0]; ++row) {
        const auto begin = from.begin() + row * tensor.shape[1] + config.step_channels;
        std::copy(begin, begin + p.shape[1], to + row * p.shape[1]);
      }
    } else {
      std::ranges::copy(from, to);
    }
  }
  return flat;
}

std::vector<float> film_table(const Unet1dConfig& config, const Parameters& parameters, const PublishedWeights& weights,
                              const std::vector<int>& timesteps) {
  std::vector<std::vector<double>> embeddings;
  for (const int t : timesteps) {
    std::vector<double> h = sinusoids(t, config.step_channels);
    h = product(weights.at("diffusion_step_encoder.1.weight"), config.step_channels,
                weights.at("diffusion_step_encoder.1.bias"), h);
    apply_mish(h);
    h = product(weights.at("diffusion_step_encoder.3.weight"), 4 * config.step_channels,
                weights.at("diffusion_step_encoder.3.bias"), h);
    apply_mish(h);
    embeddings.push_back(std::move(h));
  }
  const Parameters::Group& group = parameters.group(kFilm);
  std::vector<float> table(timesteps.size() * group.rows, 0.0f);
  for (const auto& [layer, first] : group.row) {
    const std::vector<float>& w = weights.at(layer + ".weight");
    const std::int64_t columns = config.condition(), rows = static_cast<std::int64_t>(w.size()) / columns;
    float* const column = table.data() + first;
    parallel_for(rows, 16, [&, column](std::int64_t begin, std::int64_t end) {
      const std::span<const float> some(w.data() + begin * columns, (end - begin) * columns);
      for (std::size_t i = 0; i < embeddings.size(); ++i) {
        const std::vector<double> y = product(some, columns, {}, embeddings[i]);
        std::ranges::copy(y, column + static_cast<std::int64_t>(i) * group.rows + begin);
      }
    });
  }
  return table;
}

}  // namespace ladder::nn

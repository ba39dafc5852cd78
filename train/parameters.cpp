#include "train/parameters.h"

#include <cmath>
#include <random>

#include "core/error.h"

namespace ladder::train {
namespace {

using Range = Parameter::Range;
using Start = Parameter::Start;

class Declaration {
 public:
  explicit Declaration(std::vector<Parameter>& all) : all_(all) {}

  void weight_and_bias(const std::string& name, std::vector<std::int64_t> shape, Range range, bool zero = false) {
    std::int64_t fan_in = 1;
    for (std::size_t i = 1; i < shape.size(); ++i) fan_in *= shape[i];
    const Start start = zero ? Start::zeros : Start::uniform;
    const std::int64_t out = shape[0];
    all_.push_back(
        {.name = name + ".weight", .shape = std::move(shape), .range = range, .start = start, .fan_in = fan_in});
    all_.push_back({.name = name + ".bias", .shape = {out}, .start = start, .fan_in = fan_in});
  }
  void conv3x3(const std::string& name, int in, int out, bool zero = false) {
    weight_and_bias(name, {out, in, 3, 3}, Range::matrices, zero);
  }
  void linear(const std::string& name, int in, int out) { weight_and_bias(name, {out, in}, Range::embedding); }
  void normalisation(const std::string& name, int channels) {
    all_.push_back({.name = name + ".weight", .shape = {channels}, .start = Start::ones});
    all_.push_back({.name = name + ".bias", .shape = {channels}, .start = Start::zeros});
  }

  void add(const Layer& layer, int embedding_channels) {
    switch (layer.kind) {
      case Layer::Kind::conv:
        conv3x3(layer.name, layer.in, layer.out);
        break;
      case Layer::Kind::res_block:
        normalisation(layer.name + ".in_layers.0", layer.in);
        conv3x3(layer.name + ".in_layers.2", layer.in, layer.out);
        linear(layer.name + ".emb_layers.1", embedding_channels, layer.out);
        normalisation(layer.name + ".out_layers.0", layer.out);
        conv3x3(layer.name + ".out_layers.3", layer.out, layer.out, true);
        if (layer.in != layer.out) {
          weight_and_bias(layer.name + ".skip_connection", {layer.out, layer.in, 1, 1}, Range::matrices);
        }
        break;
      case Layer::Kind::attention:
        normalisation(layer.name + ".norm", layer.in);
        weight_and_bias(layer.name + ".qkv", {std::int64_t{3} * layer.in, layer.in, 1}, Range::matrices);
        weight_and_bias(layer.name + ".proj_out", {layer.in, layer.in, 1}, Range::matrices, true);
        break;
      case Layer::Kind::pool:
      case Layer::Kind::upsample:
        break;
    }
  }

 private:
  std::vector<Parameter>& all_;
};

std::string res_block_of(const std::string& parameter) {  // of one of its emb_layers, else empty
  const auto at = parameter.find(".emb_layers.");
  return at == std::string::npos ? std::string() : parameter.substr(0, at);
}

}  // namespace

std::int64_t Parameter::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

Parameters::Parameters(const ModelConfig& config) {
  const Architecture net(config);
  const int embedding = config.embedding_channels();
  Declaration declaration(all_);
  declaration.linear("time_embed.0", config.channels, embedding);
  declaration.linear("time_embed.2", embedding, embedding);
  for (const std::vector<Block>& blocks : {net.down, {net.middle}, net.up}) {
    for (const Block& block : blocks) {
      for (const Layer& layer : block.layers) declaration.add(layer, embedding);
    }
  }
  const int last = config.level_channels(0);
  declaration.normalisation("out.0", last);
  declaration.conv3x3("out.2", last, kImageChannels, true);
  for (std::size_t i = 0; i < all_.size(); ++i) by_name_.emplace(all_[i].name, i);

  const auto place = [&](Parameter& p) {
    p.begin = size_;
    size_ += aligned(p.elements());
  };
  const auto place_range = [&](Range range) {
    for (Parameter& p : all_) {
      if (p.range == range && res_block_of(p.name).empty()) place(p);
    }
  };
  // Linear layers of residual blocks: rows, too, begin at multiples of kAlignment.
  const auto place_embedding = [&](Range range) {
    for (Parameter& p : all_) {
      const std::string block = res_block_of(p.name);
      if (p.range != range || block.empty()) continue;
      p.begin = size_;
      size_ += aligned(p.shape[0]) * (p.elements() / p.shape[0]);
      if (range == Range::embedding) {
        embedding_row_.emplace(block, embedding_rows_);
        embedding_rows_ += aligned(p.shape[0]);
      }
    }
  };
  place_range(Range::matrices);
  matrices_end_ = size_;
  place_range(Range::embedding);
  embedding_weights_begin_ = size_;
  place_embedding(Range::embedding);
  embedding_end_ = size_;
  place_range(Range::vectors);
  embedding_bias_begin_ = size_;
  place_embedding(Range::vectors);
}

const Parameter& Parameters::operator[](std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  if (found == by_name_.end()) throw Failure("the model has no parameter " + std::string(name));
  return all_[found->second];
}

std::int64_t Parameters::count() const {
  std::int64_t sum = 0;
  for (const Parameter& p : all_) sum += p.elements();
  return sum;
}

std::int64_t Parameters::embedding_row(std::string_view res_block) const {
  const auto found = embedding_row_.find(std::string(res_block));
  if (found == embedding_row_.end()) throw Failure("the model has no residual block " + std::string(res_block));
  return found->second;
}

std::vector<float> Parameters::initial(std::uint64_t seed) const {
  std::vector<float> values(size_, 0.0f);
  std::mt19937_64 random(seed);
  for (const Parameter& p : all_) {
    if (p.start == Start::zeros) continue;
    const double bound = 1.0 / std::sqrt(static_cast<double>(p.fan_in));
    for (std::int64_t i = 0; i < p.elements(); ++i) {
      // 53 random bits as a number from -1 to 1: the distributions of <random> differ between libraries.
      const double uniform = static_cast<double>(random() >> 11) * 0x1p-52 - 1.0;
      values[p.begin + i] = p.start == Start::ones ? 1.0f : static_cast<float>(bound * uniform);
    }
  }
  return values;
}

}  // namespace ladder::train

#include "nn/models/unet2d.h"

#include <memory>

#include "nn/layers.h"

namespace ladder::nn {
namespace {

using Activation = groupnorm::Activation;

// Groups over all residual blocks: the embedding's linear layers, and the biases of the convolutions to whose outputs
// the embedding is added.
constexpr const char* kEmbedding = "emb_layers.1";
constexpr const char* kFirstBiases = "in_layers.2.bias";

class Forward {
 public:
  Forward(const Unet2dConfig& config, Tape& tape, const Binding& binding) : config_(config), layers_(tape, binding) {}

  ValueId run(const Unet2dLayers& net, ValueId x, ValueId rows, const Region* result) {
    layers_.set_rows(kEmbedding, rows, kFirstBiases);
    std::vector<ValueId> skips;
    for (const Block& block : net.down) {
      x = run(block, x);
      skips.push_back(x);
    }
    x = run(net.middle, x);
    for (const Block& block : net.up) {
      x = layers_.concat(block.layers.front().name + " input", x, skips.back());
      skips.pop_back();
      x = run(block, x);
    }
    x = layers_.group_norm("out.0", x, kGroups, Activation::silu);
    return layers_.conv3x3("out.2", x, kImageChannels, result);
  }

 private:
  ValueId run(const Block& block, ValueId x) {
    for (const Layer& layer : block.layers) x = run(layer, x);
    return x;
  }

  ValueId run(const Layer& layer, ValueId x) {
    switch (layer.kind) {
      case Layer::Kind::conv:
        return layers_.conv3x3(layer.name, x, layer.out);
      case Layer::Kind::res_block:
        return res_block(layer, x);
      case Layer::Kind::attention:
        return attention_block(layer.name, x, layer.in);
      case Layer::Kind::pool:
        return layers_.pool(layer.name, x);
      case Layer::Kind::upsample:
        return layers_.upsample(layer.name, x);
    }
    return x;
  }

  // h = conv(silu(norm(x))) + embedding;  y = skip(x) + conv(silu(norm(h)))
  ValueId res_block(const Layer& layer, ValueId x) {
    const std::string& name = layer.name;
    const std::string skip = name + ".skip_connection";
    const bool projects = layer.in != layer.out;
    const ValueId y = projects ? layers_.begin_conv1x1(skip, x, layer.out) : kNoValue;
    ValueId h = layers_.group_norm(name + ".in_layers.0", x, kGroups, Activation::silu);
    h = layers_.conv3x3_add_rows(name + ".in_layers.2", h, layer.out, name, kEmbedding, name + ".emb_layers.1");
    h = layers_.group_norm(name + ".out_layers.0", h, kGroups, Activation::silu);
    const std::string last = name + ".out_layers.3";
    if (!projects) return layers_.conv3x3_residual(last, h, layer.out, name, x);
    layers_.finish_conv1x1(y, skip, x, layers_.conv3x3(last, h, layer.out));
    return y;
  }

  // y = x + proj(attention(qkv(norm(x))))
  ValueId attention_block(const std::string& name, ValueId x, int channels) {
    ValueId h = layers_.group_norm(name + ".norm", x, kGroups);
    h = layers_.conv1x1(name + ".qkv", h, 3 * channels);
    h = layers_.attention(name, h, config_.head_size);
    return layers_.conv1x1(name + ".proj_out", h, channels, x);
  }

  const Unet2dConfig& config_;
  Layers layers_;
};

void declare(Declaration& all, const Layer& layer, int embedding_channels) {
  const auto conv3x3 = [&](const std::string& name, int in, bool zero = false, const std::string& group = {}) {
    all.conv(name, {layer.out, in, 3, 3}, zero, group);
  };
  const std::string& name = layer.name;
  switch (layer.kind) {
    case Layer::Kind::conv:
      conv3x3(name, layer.in);
      break;
    case Layer::Kind::res_block:
      all.normalisation(name + ".in_layers.0", layer.in);
      conv3x3(name + ".in_layers.2", layer.in, false, kFirstBiases);
      all.linear(name + ".emb_layers.1", embedding_channels, layer.out, kEmbedding);
      all.normalisation(name + ".out_layers.0", layer.out);
      conv3x3(name + ".out_layers.3", layer.out, true);
      if (layer.in != layer.out) all.conv(name + ".skip_connection", {layer.out, layer.in, 1, 1});
      break;
    case Layer::Kind::attention:
      all.normalisation(name + ".norm", layer.in);
      all.conv(name + ".qkv", {std::int64_t{3} * layer.in, layer.in, 1});
      all.conv(name + ".proj_out", {layer.in, layer.in, 1}, true);
      break;
    case Layer::Kind::pool:
    case Layer::Kind::upsample:
      break;
  }
}

}  // namespace

Declaration Unet2d::declare() const {
  Declaration all;
  const int embedding = config_.embedding_channels();
  all.linear("time_embed.0", config_.channels, embedding);
  all.linear("time_embed.2", embedding, embedding);
  for (const Layer& layer : layers_.all()) nn::declare(all, layer, embedding);
  const int last = config_.level_channels(0);
  all.normalisation("out.0", last);
  all.conv("out.2", {kImageChannels, last, 3, 3}, true);
  return all;
}

std::vector<std::int64_t> Unet2d::sample_shape() const {
  return {config_.image_size, config_.image_size, kImageChannels};
}

std::int64_t Unet2d::embedding_columns(const Parameters& parameters) const { return parameters.group(kEmbedding).rows; }

// Appends small operations that run beside the main stream: the first residual block is the first to wait for them.
ValueId Unet2d::embed(Tape& tape, const Binding& binding, ValueId t, const Region* output) const {
  const auto layers = std::make_shared<Layers>(tape, binding);
  // Keep `layers` alive for the backward pass, whose steps refer to it: the step registered here runs last.
  if (binding.gradients != nullptr) tape.on_backward([layers] {});
  layers->set_side_stream(true);
  const int wide = config_.embedding_channels();
  ValueId h = layers->sinusoids("time_embed", t, config_.channels);
  h = layers->linear("time_embed.0", h, wide);
  h = layers->silu("time_embed.1", h);
  h = layers->linear("time_embed.2", h, wide);
  h = layers->linear_group(kEmbedding, layers->silu("emb_layers.0", h), output);
  layers->set_side_stream(false);
  return h;
}

ValueId Unet2d::forward_embedded(Tape& tape, const Binding& binding, ValueId x, ValueId rows,
                                 const Region* output) const {
  const auto forward = std::make_shared<Forward>(config_, tape, binding);
  if (binding.gradients != nullptr) tape.on_backward([forward] {});  // keeps `forward` alive for the backward pass
  return forward->run(layers_, x, rows, output);
}

}  // namespace ladder::nn

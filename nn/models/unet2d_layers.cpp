#include "nn/models/unet2d_layers.h"

#include <fmt/format.h>

namespace ladder::nn {
namespace {

Layer layer(Layer::Kind kind, const std::string& block, std::size_t index, int in, int out, int side) {
  return {.kind = kind, .name = fmt::format("{}.{}", block, index), .in = in, .out = out, .side = side};
}

}  // namespace

Unet2dLayers::Unet2dLayers(const Unet2dConfig& config) {
  using Kind = Layer::Kind;
  config.check();
  const auto add = [](Block& block, Kind kind, const std::string& name, int in, int out, int side) {
    block.layers.push_back(layer(kind, name, block.layers.size(), in, out, side));
  };

  int channels = config.level_channels(0);
  add(down.emplace_back(), Kind::conv, "input_blocks.0", kImageChannels, channels, config.image_size);
  for (int level = 0; level < config.levels(); ++level) {
    const int side = config.side(level);
    const int out = config.level_channels(level);
    for (int i = 0; i < config.res_blocks; ++i) {
      const std::string name = fmt::format("input_blocks.{}", down.size());
      Block& block = down.emplace_back();
      add(block, Kind::res_block, name, channels, out, side);
      if (config.attends(side)) add(block, Kind::attention, name, out, out, side);
      channels = out;
    }
    if (level + 1 < config.levels()) {
      const std::string name = fmt::format("input_blocks.{}", down.size());
      add(down.emplace_back(), Kind::pool, name, channels, channels, side);
    }
  }

  const int smallest = config.side(config.levels() - 1);
  add(middle, Kind::res_block, "middle_block", channels, channels, smallest);
  add(middle, Kind::attention, "middle_block", channels, channels, smallest);
  add(middle, Kind::res_block, "middle_block", channels, channels, smallest);

  auto partner = down.rbegin();
  for (int level = config.levels() - 1; level >= 0; --level) {
    const int side = config.side(level);
    const int out = config.level_channels(level);
    for (int i = 0; i <= config.res_blocks; ++i, ++partner) {
      const std::string name = fmt::format("output_blocks.{}", up.size());
      Block& block = up.emplace_back();
      block.skip = partner->out();
      add(block, Kind::res_block, name, channels + block.skip, out, side);
      if (config.attends(side)) add(block, Kind::attention, name, out, out, side);
      if (level > 0 && i == config.res_blocks) add(block, Kind::upsample, name, out, out, side);
      channels = out;
    }
  }
}

std::vector<Layer> Unet2dLayers::all() const {
  std::vector<Layer> layers;
  for (const std::vector<Block>& blocks : {down, {middle}, up}) {
    for (const Block& block : blocks) layers.insert(layers.end(), block.layers.begin(), block.layers.end());
  }
  return layers;
}

}  // namespace ladder::nn

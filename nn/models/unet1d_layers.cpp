#include "nn/models/unet1d_layers.h"

#include <fmt/format.h>

#include "core/error.h"

namespace ladder::nn {
namespace {

Level1d level(const std::string& name, int in, int out, int skip = 0) {
  return {.blocks = {{.name = name + ".0", .in = in, .out = out, .skip = skip},
                     {.name = name + ".1", .in = out, .out = out}}};
}

}  // namespace

Unet1dLayers::Unet1dLayers(const Unet1dConfig& config) {
  config.check();
  const std::vector<int>& dims = config.dims;
  int channels = config.action_dim;
  for (int i = 0; i < config.levels(); ++i) {
    const std::string name = fmt::format("down_modules.{}", i);
    down.push_back(level(name, channels, dims[i]));
    if (i + 1 < config.levels()) down.back().resample = name + ".2.conv";
    channels = dims[i];
  }
  middle = level("mid_modules", channels, channels);
  for (int i = config.levels() - 1; i > 0; --i) {
    const std::string name = fmt::format("up_modules.{}", up.size());
    up.push_back(level(name, 2 * dims[i], dims[i - 1], dims[i]));
    up.back().resample = name + ".2.conv";
    if (!up.back().blocks.front().projects()) {
      throw UsageError(
          fmt::format("levels of {} and then {} channels: {} has a concatenation for its residual, which is "
                      "not supported",
                      dims[i - 1], dims[i], up.back().blocks.front().name));
    }
  }
}

std::vector<ResidualBlock1d> Unet1dLayers::blocks() const {
  std::vector<ResidualBlock1d> all;
  const auto add = [&](const Level1d& level) { all.insert(all.end(), level.blocks.begin(), level.blocks.end()); };
  for (const Level1d& level : down) add(level);
  add(middle);
  for (const Level1d& level : up) add(level);
  return all;
}

}  // namespace ladder::nn

#include "nn/models/unet1d.h"

#include "nn/layers.h"

namespace ladder::nn {
namespace {

using Conv1d = Layers::Conv1d;

class Forward {
 public:
  Forward(const Unet1dConfig& config, Layers& layers) : config_(config), layers_(layers) {}

  ValueId run(const Unet1dLayers& net, ValueId x) {
    std::vector<ValueId> skips;
    for (const Level1d& level : net.down) {
      x = blocks(level, x);
      skips.push_back(x);
      if (!level.resample.empty()) x = layers_.conv1d(level.resample, x, Conv1d::halving);
    }
    x = blocks(net.middle, x);
    for (const Level1d& level : net.up) {
      x = blocks(level, x, skips.back());
      skips.pop_back();
      x = layers_.conv1d(level.resample, x, Conv1d::doubling);
    }
    x = layers_.conv1d_block("final_conv.0", {.x = x}, kLastGroups, {}, kNoValue);
    return layers_.conv1d("final_conv.1", x, Conv1d::plain);
  }

 private:
  ValueId blocks(const Level1d& level, ValueId x, ValueId skip = kNoValue) {
    for (const ResidualBlock1d& block : level.blocks) {
      x = residual_block(block, {.x = x, .x_rest = skip});
      skip = kNoValue;
    }
    return x;
  }

  // h = scale block(x) + shift;  y = block(h) + r(x)
  ValueId residual_block(const ResidualBlock1d& block, const Layers::Input& in) {
    const std::string& name = block.name;
    ValueId residual = in.x;
    if (block.projects()) {
      const std::string projection = name + ".residual_conv";
      residual = layers_.conv1d(projection, in.x, Conv1d::plain);
      if (in.x_rest != kNoValue) residual = layers_.conv1d_more(projection, kOfSkip, in.x_rest, residual);
    }
    const ValueId h = layers_.conv1d_block(name + ".blocks.0", in, config_.groups, name + "." + kFilm, kNoValue);
    return layers_.conv1d_block(name + ".blocks.1", {.x = h}, config_.groups, {}, residual);
  }

  const Unet1dConfig& config_;
  Layers& layers_;
};

void declare_block(Declaration& all, const std::string& name, int in, int out, int taps) {
  all.conv(name + ".block.0", {out, in, taps});
  all.normalisation(name + ".block.1", out);
}

}  // namespace

Declaration Unet1d::declare_condition() const {
  Declaration all;
  for (const ResidualBlock1d& block : layers_.blocks()) {
    all.linear(block.name + "." + kFilm, config_.observation, config_.film_rows(block.out), kFilm);
  }
  return all;
}

Declaration Unet1d::declare() const {
  Declaration all = declare_condition();
  for (const ResidualBlock1d& block : layers_.blocks()) {
    const std::string& name = block.name;
    declare_block(all, name + ".blocks.0", block.in, block.out, config_.taps);
    declare_block(all, name + ".blocks.1", block.out, block.out, config_.taps);
    if (!block.projects()) continue;
    all.conv(name + ".residual_conv", {block.out, block.in - block.skip, 1});
    if (block.skip == 0) continue;
    all.parameters.push_back({.name = name + ".residual_conv.weight" + kOfSkip,
                              .shape = {block.out, block.skip, 1},
                              .range = Parameter::Range::matrices});
  }
  const auto declare_resampling = [&](const Level1d& level, int taps) {
    if (!level.resample.empty()) all.conv(level.resample, {level.out(), level.out(), taps});
  };
  for (const Level1d& level : layers_.down) declare_resampling(level, kHalvingTaps);
  for (const Level1d& level : layers_.up) declare_resampling(level, kDoublingTaps);
  const int last = config_.dims.front();
  declare_block(all, "final_conv.0", last, last, config_.taps);
  all.conv("final_conv.1", {config_.action_dim, last, 1});
  return all;
}

void Unet1d::observe(Tape& tape, const Binding& binding, ValueId observations, const Region& rows) const {
  Layers(tape, binding).linear_group(kFilm, observations, &rows);
}

ValueId Unet1d::forward(Tape& tape, const Binding& binding, ValueId x, const Region& table, int step,
                        const Region& rows) const {
  Layers layers(tape, binding);
  layers.set_film({.group = kFilm, .table = &table, .step = step, .rows = &rows, .scales = config_.scale});
  return Forward(config_, layers).run(layers_, x);
}

}  // namespace ladder::nn

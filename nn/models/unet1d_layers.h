// The U-Net of Diffusion Policy as a list of layers with their names and sizes. Parameters, weight files and the tape
// of operations are derived from this list.
//
//     down:    two residual blocks a level; after each level but the last a convolution that halves the sequence
//     middle:  two residual blocks
//     up:      a level for each level of the way down but the first: two residual blocks, then a transposed convolution
//              that doubles the sequence; the first block's input is concatenated with the output of its partner level
//              on the way down
//     out:     a block, then a 1x1 convolution to the numbers of an action
#pragma once

#include <string>
#include <vector>

#include "nn/models/unet1d_config.h"

namespace ladder::nn {

struct ResidualBlock1d {
  std::string name;  // as published: "down_modules.0.0"
  int in = 0;        // channels, those of the skip included
  int out = 0;
  int skip = 0;  // channels of `in` that come from the partner on the way down

  bool projects() const { return in != out; }  // the residual is a 1x1 convolution of the input
};

struct Level1d {
  std::vector<ResidualBlock1d> blocks;
  std::string resample = {};  // the convolution after the blocks, "down_modules.0.2.conv"; empty: none

  int out() const { return blocks.back().out; }
};

struct Unet1dLayers {
  // Throws UsageError where the configuration describes no network that can be built.
  explicit Unet1dLayers(const Unet1dConfig& config);

  std::vector<Level1d> down;
  Level1d middle;
  std::vector<Level1d> up;

  std::vector<ResidualBlock1d> blocks() const;  // in execution order
};

}  // namespace ladder::nn

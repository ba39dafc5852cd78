// The U-Net of Diffusion Policy as a list of layers: which there are, what they are called, how large they are. Parameters,
// weights in files and the tape of operations all read it from here.
//
//     down:    two residual blocks a level; after each level but the last a convolution that halves the sequence
//     middle:  two residual blocks
//     up:      a level for each of the way down but the first: two residual blocks, the first one's input joined by the
//              output of its partner on the way down, then a transposed convolution that doubles the sequence
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
  int skip = 0;  // of `in`: those of the partner on the way down

  bool projects() const { return in != out; }  // whether its residual is a 1x1 convolution
};

struct Level1d {
  std::vector<ResidualBlock1d> blocks;
  std::string resample = {};  // the convolution after them, "down_modules.0.2.conv"; empty: none

  int out() const { return blocks.back().out; }
};

struct Unet1dLayers {
  // Throws UsageError where the configuration describes no network that can be built.
  explicit Unet1dLayers(const Unet1dConfig& config);

  std::vector<Level1d> down;
  Level1d middle;
  std::vector<Level1d> up;

  std::vector<ResidualBlock1d> blocks() const;  // in the order in which they run
};

}  // namespace ladder::nn

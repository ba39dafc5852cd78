// The U-Net as a list of layers with their names and sizes. Parameters, the tape of operations and printouts of the
// model are derived from this list.
//
//     down:    conv3x3, then each level's res-blocks (with attention where it attends), a pool between levels
//     middle:  res-block, attention, res-block
//     up:      each level's res-blocks, one more than on the way down, each after a concat with its partner's output on
//              the way down; an upsample after a level's last res-block
//     out:     normalisation, SiLU, conv3x3
#pragma once

#include <string>
#include <vector>

#include "nn/models/unet2d_config.h"

namespace ladder::nn {

struct Layer {
  enum class Kind { conv, res_block, attention, pool, upsample };
  Kind kind = Kind::conv;
  std::string name;  // as guided-diffusion's: "input_blocks.1.0"
  int in = 0;        // channels
  int out = 0;
  int side = 0;  // height and width of the input, in pixels
};

// Layers in sequence. On the way up, `skip` channels of an output of the way down are concatenated to the first layer's
// input.
struct Block {
  std::vector<Layer> layers;
  int skip = 0;

  int out() const { return layers.back().out; }
};

struct Unet2dLayers {
  explicit Unet2dLayers(const Unet2dConfig& config);

  std::vector<Block> down;  // the output of each is kept for one of `up`
  Block middle;
  std::vector<Block> up;

  std::vector<Layer> all() const;  // of all blocks
};

}  // namespace ladder::nn

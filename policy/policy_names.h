// What the tensors of Diffusion Policy's U-Net are called in files.
#pragma once

#include <string>
#include <vector>

#include "io/safetensors.h"

namespace ladder::denoise {

struct Names {
  std::string prefix;    // of all names: "", "model.", "diffusion.unet._orig_mod."
  bool lerobot = false;  // conv1 and conv2 for blocks.0 and blocks.1, no `.conv` in what halves and doubles

  // The name in such a file of a tensor that is published as "down_modules.0.0.blocks.0.block.0.weight".
  std::string in_file(const std::string& published) const;
  // Whether such a file's tensor is one of the network.
  bool of_network(const std::string& name) const;
};

// Of a file. Throws Failure where it has no such network, or two.
Names names_of(const io::SafetensorsFile& file);

}  // namespace ladder::denoise

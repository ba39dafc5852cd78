// Names of the tensors of Diffusion Policy's U-Net in files.
#pragma once

#include <string>
#include <vector>

#include "io/safetensors.h"

namespace ladder::denoise {

struct Names {
  std::string prefix;    // of all names: "", "model.", "diffusion.unet._orig_mod."
  bool lerobot = false;  // conv1 and conv2 for blocks.0 and blocks.1, no `.conv` in resampling convolutions

  // Returns the file's name of a tensor, given its published name, such as "down_modules.0.0.blocks.0.block.0.weight".
  std::string in_file(const std::string& published) const;
  // Returns whether the tensor of that name in the file belongs to the network.
  bool of_network(const std::string& name) const;
};

// Detects the names used in a file. Throws Failure where it has no such network, or two.
Names names_of(const io::SafetensorsFile& file);

}  // namespace ladder::denoise

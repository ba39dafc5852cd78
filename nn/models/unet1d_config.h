// Configuration of Diffusion Policy's U-Net (Chi et al. 2023: ConditionalUnet1D of conditional_unet1d.py), in any size.
#pragma once

#include <vector>

namespace ladder::nn {

// Number of groups of the last block's normalisation, independent of Unet1dConfig::groups.
inline constexpr int kLastGroups = 8;

struct Unet1dConfig {
  int horizon = 16;                          // actions of an answer: positions of the sequence
  int action_dim = 2;                        // numbers of an action: channels of the sequence
  std::vector<int> dims = {256, 512, 1024};  // a level's channels; each level but the last halves the sequence
  int taps = 5;                              // of convolutions
  int step_channels = 256;                   // of a time step's embedding
  int observation = 1028;                    // numbers of an observation
  int groups = 8;                            // of normalisations
  bool scale = true;                         // the condition scales channels besides shifting them

  // Throws UsageError saying what is wrong and what would be right.
  void check() const;

  int levels() const { return static_cast<int>(dims.size()); }
  int condition() const { return step_channels + observation; }
  int film_rows(int channels) const { return (scale ? 2 : 1) * channels; }  // of a residual block

  bool operator==(const Unet1dConfig&) const = default;
};

// Small, for a machine without a GPU: dims 32, 64, 128.
Unet1dConfig tiny_unet1d();

}  // namespace ladder::nn

// Diffusion Policy's U-Net in double precision, straight from its formulas.
#pragma once

#include <vector>

#include "nn/models/unet1d_config.h"
#include "nn/models/unet1d_weights.h"

namespace ladder::denoise::test {

// Returns the network's prediction for one sample x [horizon, action_dim] at time step t, given a normalised
// observation.
std::vector<double> predicted(const nn::Unet1dConfig& config, const nn::PublishedWeights& weights,
                              const std::vector<double>& x, int t, const std::vector<float>& observation);

}  // namespace ladder::denoise::test

// Weights of the U-Net of Diffusion Policy: as published, and as the device has them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nn/models/unet1d_config.h"
#include "nn/parameters.h"

namespace ladder::nn {

// A tensor as PyTorch has it: Conv1d [out, in, taps], ConvTranspose1d [in, out, taps], Linear [out, in].
struct PublishedTensor {
  enum class Kind { conv, transposed, linear, bias, gamma, beta };

  std::string name;  // "down_modules.0.0.blocks.0.block.0.weight"
  std::vector<std::int64_t> shape;
  Kind kind = Kind::conv;
  std::int64_t fan_in = 1;  // of weights and biases: PyTorch's initialisation is uniform up to 1 / sqrt(fan_in)

  std::int64_t elements() const;
};

// In the order of PyTorch's state_dict.
std::vector<PublishedTensor> published_tensors(const Unet1dConfig& config);

using PublishedWeights = std::map<std::string, std::vector<float>, std::less<>>;  // by name

// Made-up weights, the same everywhere: with u[i][j] from 0 to 1, made of the number i of the tensor in the list above and
// the number j of the element (splitmix64 of i 2^32 + j), weights and biases are (2u - 1) / sqrt(fan_in), gamma
// 1 + (2u - 1) / 4 and beta (2u - 1) / 4.
PublishedWeights made_up_weights(const Unet1dConfig& config);

// The flat buffer that Unet1d's operations read, of parameters.size().
std::vector<float> packed_weights(const Unet1dConfig& config, const Parameters& parameters,
                                  const PublishedWeights& weights);

// out[k][tap][c] = in[k][c][tap] of a convolution's weights, of a transposed one's in[c][k][tap], for `channels` inputs c from
// `first` on. `shape` is that of `in`.
void pack_conv(const std::vector<float>& in, const std::vector<std::int64_t>& shape, bool transposed,
               std::int64_t first, std::int64_t channels, float* out);

// What time steps alone add to the condition's rows: [timesteps, rows of the group kFilm]. A residual block's rows are
// W Mish([embedding of t, observation]) + b, and Mish acts on each number, so that W's first columns make this table and
// the others, with b, what Unet1d::observe() computes.
std::vector<float> film_table(const Unet1dConfig& config, const Parameters& parameters, const PublishedWeights& weights,
                              const std::vector<int>& timesteps);

// x tanh(log(1 + e^x))
double mish(double x);

}  // namespace ladder::nn

// Weights of Diffusion Policy's U-Net in the published layout and in the device's layout.
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
  std::int64_t fan_in = 1;  // PyTorch initialises weights and biases uniformly in +-1 / sqrt(fan_in)

  std::int64_t elements() const;
};

// All published tensors, in the order of PyTorch's state_dict.
std::vector<PublishedTensor> published_tensors(const Unet1dConfig& config);

using PublishedWeights = std::map<std::string, std::vector<float>, std::less<>>;  // by name

// Made-up weights, the same on every machine. u[i][j] in [0, 1) is the upper 24 bits of splitmix64(i 2^32 + j) for
// element j of tensor i of published_tensors(). Weights and biases are (2u - 1) / sqrt(fan_in), gamma 1 + (2u - 1) / 4
// and beta (2u - 1) / 4.
PublishedWeights made_up_weights(const Unet1dConfig& config);

// Packs weights into the flat buffer [parameters.size()] that Unet1d's operations read.
std::vector<float> packed_weights(const Unet1dConfig& config, const Parameters& parameters,
                                  const PublishedWeights& weights);

// Transposes a convolution's weights: out[k][tap][c] = in[k][first + c][tap], or in[first + c][k][tap] if `transposed`,
// for c < channels. `shape` is the shape of `in`.
void pack_conv(const std::vector<float>& in, const std::vector<std::int64_t>& shape, bool transposed,
               std::int64_t first, std::int64_t channels, float* out);

// The time steps' contribution to the FiLM rows: [timesteps, rows of the group kFilm]. A residual block's rows are
// W Mish([embedding of t, observation]) + b. Mish is elementwise, so W's first columns give this table, and
// its other columns with b give the output of Unet1d::observe().
std::vector<float> film_table(const Unet1dConfig& config, const Parameters& parameters, const PublishedWeights& weights,
                              const std::vector<int>& timesteps);

// x tanh(log(1 + e^x))
double mish(double x);

}  // namespace ladder::nn

// The U-Net of Diffusion Policy: its parameters and its forward pass.
#pragma once

#include "nn/models/unet1d_config.h"
#include "nn/models/unet1d_layers.h"
#include "nn/state.h"
#include "runtime/tape.h"

namespace ladder::nn {

// Group of all residual blocks' linear layers that map the observation to scales and shifts (FiLM).
inline constexpr const char* kFilm = "cond_encoder.1";
// Suffix of a parameter's name: the weights of that 1x1 convolution for the channels of the skip.
inline constexpr const char* kOfSkip = " of the skip";

inline constexpr int kHalvingTaps = 3, kDoublingTaps = 4;

class Unet1d {
 public:
  // Throws UsageError where the configuration describes no network.
  explicit Unet1d(const Unet1dConfig& config) : config_(config), layers_(config) {}

  const Unet1dConfig& config() const { return config_; }

  // All parameters, with their published names. The linear layers of kFilm have only the observation's columns, and the
  // weights of a 1x1 convolution that reads a skip are two parameters.
  Declaration declare() const;
  // The parameters of observe() alone: the linear layers of kFilm.
  Declaration declare_condition() const;

  // observe() and forward() append to the tape.
  //     observe   Mish of observations [n, observation] fp32; writes rows [n, rows of kFilm] fp32
  //     forward   x [n, horizon, action_dim] in the storage dtype; returns the prediction, of the same shape and dtype
  void observe(Tape& tape, const Binding& binding, ValueId observations, const Region& rows) const;
  // `table` is film_table() on the device, `step` the table's row for the time step, `rows` the output of observe().
  ValueId forward(Tape& tape, const Binding& binding, ValueId x, const Region& table, int step,
                  const Region& rows) const;

 private:
  Unet1dConfig config_;
  Unet1dLayers layers_;
};

}  // namespace ladder::nn

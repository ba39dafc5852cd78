// The U-Net of Diffusion Policy: what it learns, and its forward pass.
#pragma once

#include "nn/models/unet1d_config.h"
#include "nn/models/unet1d_layers.h"
#include "nn/state.h"
#include "runtime/tape.h"

namespace ladder::nn {

// Of all residual blocks, together: the linear layers that make scales and shifts of the observation.
inline constexpr const char* kFilm = "cond_encoder.1";
// Ends the name of a parameter: of the 1x1 convolution with this name, what multiplies the channels of the skip.
inline constexpr const char* kOfSkip = " of the skip";

inline constexpr int kHalvingTaps = 3, kDoublingTaps = 4;

class Unet1d {
 public:
  // Throws UsageError where the configuration describes no network.
  explicit Unet1d(const Unet1dConfig& config) : config_(config), layers_(config) {}

  const Unet1dConfig& config() const { return config_; }

  // Its parameters, with their published names. The linear layers of kFilm have the observation's columns alone, and a
  // convolution that reads a skip is two.
  Declaration declare() const;
  // Those of observe() alone: the linear layers of kFilm.
  Declaration declare_condition() const;

  // Both append to the tape.
  //     observe   Mish of observations [n, observation] fp32; writes rows [n, rows of kFilm] fp32
  //     forward   x [n, horizon, action_dim] in the storage dtype; returns the prediction, likewise
  void observe(Tape& tape, const Binding& binding, ValueId observations, const Region& rows) const;
  // `table` is film_table() on the device, `step` the row of this step's time, `rows` those of observe().
  ValueId forward(Tape& tape, const Binding& binding, ValueId x, const Region& table, int step,
                  const Region& rows) const;

 private:
  Unet1dConfig config_;
  Unet1dLayers layers_;
};

}  // namespace ladder::nn

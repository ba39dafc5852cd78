// guided-diffusion's UNetModel with conv_resample and resblock_updown off, in any size.
#pragma once

#include "nn/model.h"
#include "nn/models/unet2d_config.h"
#include "nn/models/unet2d_layers.h"

namespace ladder::nn {

class Unet2d : public Model {
 public:
  // Throws UsageError where the configuration describes no network.
  explicit Unet2d(const Unet2dConfig& config) : config_(config), layers_(config) {}

  Declaration declare() const override;
  std::vector<std::int64_t> sample_shape() const override;
  std::int64_t embedding_columns(const Parameters& parameters) const override;
  ValueId embed(Tape& tape, const Binding& binding, ValueId t, const Region* output = nullptr) const override;
  ValueId forward_embedded(Tape& tape, const Binding& binding, ValueId x, ValueId rows,
                           const Region* output = nullptr) const override;

 private:
  Unet2dConfig config_;
  Unet2dLayers layers_;
};

}  // namespace ladder::nn

// A whole denoising step as one kernel: the operation policy/step in the place of the network's and the scheduler's.
#pragma once

#include <optional>
#include <string>

#include "core/dtype.h"
#include "dev/policy/policy.h"
#include "nn/models/unet1d_config.h"
#include "nn/models/unet1d_weights.h"
#include "policy/denoising_steps.h"
#include "runtime/promoted.h"
#include "runtime/region.h"
#include "runtime/tape.h"

namespace ladder::denoise {

// What a step is made of, and why.
struct StepChoice {
  std::optional<policy::Problem> one_kernel;  // nothing: the network's operations
  std::string version;                        // of policy/step
  std::string reason;

  std::string str() const;  // "a step is one kernel, policy/step v02_weight_stream: --use"
  // The network's operations instead, because the version was refused.
  StepChoice refused(const std::string& why) const;
};

// policy/step where --use names a version that can run the problem. Without --use, where a recorded version can, of as many
// observations if they are several: versions may take these one after the other, which operations do at once.
StepChoice choose_step(const nn::Unet1dConfig& config, const DenoisingSteps& steps, Dtype dtype, int samples,
                       const Promotions& promotions);

class OneKernelStep {
 public:
  // Packs the weights, which is all of the network that a step reads besides the condition.
  OneKernelStep(const policy::Problem& problem, const nn::Unet1dConfig& config, const nn::PublishedWeights& published);

  // Numbers of a row of the condition: the scales, then the shifts of each residual block.
  int film_row() const { return film_row_; }

  struct Operands {
    ValueId film_table, film, table, step, noise, x;
  };
  // Appends a step of x, in place.
  void append(Tape& tape, const Operands& operands) const;

 private:
  policy::Problem problem_;
  int film_row_;
  OwnedRegion weights_, vectors_;
};

}  // namespace ladder::denoise

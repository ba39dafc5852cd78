// A full denoising step as one kernel: the operation policy/step replaces the operations of network and scheduler.
#pragma once

#include <optional>
#include <string>

#include "core/dtype.h"
#include "dev/policy/policy.h"
#include "nn/models/unet1d_config.h"
#include "nn/models/unet1d_weights.h"
#include "policy/sampling_schedule.h"
#include "runtime/promoted.h"
#include "runtime/region.h"
#include "runtime/tape.h"

namespace ladder::denoise {

// Implementation of a denoising step (one kernel or separate operations), with the reason for the choice.
struct StepChoice {
  std::optional<policy::Problem> one_kernel;  // nullopt: the network's operations
  std::string version;                        // of policy/step; empty for the network's operations
  std::string reason;

  std::string str() const;  // "a step is one kernel, policy/step v02_weight_stream: --use"
  // Returns the choice of the network's operations, with the reason that the version was refused.
  StepChoice refused(const std::string& why) const;
};

// Chooses policy/step where --use names a version that can run the problem, or, without --use, where a recorded version
// can. For several observations the record must be of the same number: versions may process them one by one, operations
// process all at once.
StepChoice choose_step(const nn::Unet1dConfig& config, const SamplingSchedule& steps, Dtype dtype, int samples,
                       const Promotions& promotions);

class OneKernelStep {
 public:
  // Packs weights, biases, gamma and beta: all that a step reads of the network besides the FiLM rows.
  OneKernelStep(const policy::Problem& problem, const nn::Unet1dConfig& config, const nn::PublishedWeights& published);

  // Elements of a FiLM row: the scales, then the shifts of each residual block.
  int film_row() const { return film_row_; }

  struct Operands {
    ValueId film_table, film, table, step, noise, x;
  };
  // Appends a step that updates x in place.
  void append(Tape& tape, const Operands& operands) const;

 private:
  policy::Problem problem_;
  int film_row_;
  OwnedRegion weights_, vectors_;
};

}  // namespace ladder::denoise

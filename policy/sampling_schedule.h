// The denoising steps of a policy's sampler: time steps and scheduler coefficients.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/registry.h"
#include "dev/diffusion/diffusion.h"
#include "dev/diffusion/scheduler.h"

namespace ladder::denoise {

struct SamplingSchedule {
  diffusion::SchedulerConfig config;
  std::vector<int> timesteps;
  std::vector<diffusion::StepCoefficients> rows;  // the scheduler's table

  // Takes `count` steps, by default all that the scheduler was trained with. Throws UsageError for more than these or
  // below 1.
  SamplingSchedule(const diffusion::SchedulerConfig& scheduler, std::optional<int> count);
  // Takes the time steps `visited`. Throws UsageError for an empty list or a time step that the scheduler does not
  // have.
  SamplingSchedule(const diffusion::SchedulerConfig& scheduler, std::vector<int> visited);

  void first_only() {  // to list the operations of a single step
    timesteps.resize(1);
    rows.resize(1);
  }

  bool noisy() const { return config.kind == diffusion::SchedulerKind::ddpm || config.eta > 0; }
  // The number of leading steps for which diffusers draws noise: ddpm draws none at time step 0.
  int num_drawn() const;
  // The case of the scheduler's step, ddpm_step or ddim_step, for the samples, positions and channels of `shape`.
  Case case_of(const diffusion::Problem& shape) const;
  std::string str() const;  // "100 ddpm steps of 100"
};

// Returns the scheduler's configuration from diffusers' fields. A missing field takes its value in the published
// Diffusion Policy, with a line in `notes`. A non-empty `kind`, "ddpm" or "ddim", overrides the fields' kind. Throws
// UsageError.
diffusion::SchedulerConfig scheduler_of(nlohmann::json fields, const std::string& kind,
                                        std::vector<std::string>& notes);

}  // namespace ladder::denoise

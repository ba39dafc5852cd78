// The steps of a policy's sampler.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/registry.h"
#include "dev/diffusion/diffusion.h"
#include "dev/diffusion/scheduler.h"

namespace ladder::denoise {

struct DenoisingSteps {
  diffusion::SchedulerConfig config;
  std::vector<int> timesteps;
  std::vector<diffusion::Step> rows;  // the scheduler's table

  // Throws UsageError where `count`, all of the training's if there is none, is more than the scheduler was trained with.
  DenoisingSteps(const diffusion::SchedulerConfig& scheduler, std::optional<int> count);
  // Visits these time steps. Throws UsageError for an empty list or a time step that the scheduler does not have.
  DenoisingSteps(const diffusion::SchedulerConfig& scheduler, std::vector<int> visited);

  void first_only() {  // for a look at the operations of a step
    timesteps.resize(1);
    rows.resize(1);
  }

  bool noisy() const { return config.kind == diffusion::SchedulerKind::ddpm || config.eta > 0; }
  // The number of steps, from the first, for which diffusers draws noise: ddpm's have none at time step 0.
  int num_drawn() const;
  // Of `shape`'s samples, positions and channels.
  Case case_of(const diffusion::Problem& shape) const;
  std::string str() const;  // "100 ddpm steps of 100"
};

// Of diffusers' fields; those that are missing take the values that Diffusion Policy was published with, and `notes` says
// so. `kind`, "ddpm" or "ddim", if it is not empty, is in the place of the fields' own. Throws UsageError.
diffusion::SchedulerConfig scheduler_of(nlohmann::json fields, const std::string& kind,
                                        std::vector<std::string>& notes);

}  // namespace ladder::denoise

// Samplers as the package diffusers has them (DDPMScheduler: Ho et al. 2020; DDIMScheduler: Song et al. 2021): which time
// steps are visited, and a row of coefficients for each.
#pragma once

#include <string_view>
#include <vector>

#include "dev/diffusion/schedule.h"

namespace ladder::diffusion {

enum class SchedulerKind { ddpm, ddim };
enum class Prediction { epsilon, sample, v_prediction };  // what the model's output is
enum class Spacing { leading, trailing, linspace };
// Of ddpm's noise: the posterior's, at least 1e-20; the same by its logarithm; beta.
enum class Variance { fixed_small, fixed_small_log, fixed_large };

// The fields of diffusers' scheduler_config.json, with their defaults, then what its step() is given.
struct SchedulerConfig {
  SchedulerKind kind = SchedulerKind::ddpm;
  int num_train_timesteps = kTimesteps;
  Betas beta_schedule = Betas::linear;
  double beta_start = 1e-4;
  double beta_end = 0.02;
  std::vector<double> trained_betas;  // in place of the schedule, where there are any
  Prediction prediction_type = Prediction::epsilon;
  bool clip_sample = true;
  double clip_sample_range = 1;
  Spacing timestep_spacing = Spacing::leading;
  int steps_offset = 0;                            // leading: added to each time step
  Variance variance_type = Variance::fixed_small;  // ddpm
  bool set_alpha_to_one = true;                    // ddim: alpha_bar after the last step is 1, else alpha_bar[0]

  double eta = 0;            // ddim: 0 is deterministic, 1 has ddpm's noise
  bool clipped_eps = false;  // ddim: eps is derived anew from the clamped x0, "use_clipped_model_output"
  // Coefficients are made in double from betas in double. Otherwise each operation is rounded to fp32 in the order of
  // diffusers, which is less exact (by 3e-4 in a step of 1000) and equal to what it computes.
  bool in_double = false;

  // Of the text of a scheduler_config.json. Throws UsageError on what is not supported, naming what is. As in diffusers,
  // keys of other schedulers have no meaning.
  static SchedulerConfig from_json(std::string_view text);
};

// The time steps of a sampler of `steps` steps, the last of the process first:
//     leading   i * (num_train_timesteps / steps) + steps_offset, the quotient rounded down
//     trailing  num_train_timesteps - i * num_train_timesteps / steps, rounded, less 1
//     linspace  from num_train_timesteps - 1 to 0 in equal distances, rounded
// Throws UsageError unless 1 <= steps <= num_train_timesteps.
std::vector<int> scheduler_timesteps(const SchedulerConfig& config, int steps);

// Coefficients of one step of a sampler, from x at its time step to x at the next one. `pred` is the model's output.
//     x0 = clamp((x_scale x - pred_scale pred) x0_scale, -clip, clip)
//     x' = x0_weight x0 + x_weight x + pred_weight pred + sigma noise
// The difference comes first: where alpha_bar is small, x and eps are nearly equal, and terms that were scaled by
// 1 / sqrt(alpha_bar) before would lose in it what this form keeps.
struct Step {
  float x_scale;     // epsilon: 1                    sample:  0   v_prediction: sqrt(alpha_bar)
  float pred_scale;  //          sqrt(1 - alpha_bar)          -1                 sqrt(1 - alpha_bar)
  float x0_scale;    //          1 / sqrt(alpha_bar)           1                 1
  float clip;        // infinity where nothing is clamped
  float x0_weight;
  float x_weight;
  float pred_weight;  // ddpm: 0
  float sigma;
};
inline constexpr int kStepColumns = sizeof(Step) / sizeof(float);

// A row for each of these time steps. The one after it is the next in the list for ddpm, num_train_timesteps /
// timesteps.size() before it for ddim, as diffusers has it; before the first of the process, a clean image's. ddpm has no
// noise at time step 0. Throws UsageError on a configuration or time step that cannot be.
std::vector<Step> scheduler_table(const SchedulerConfig& config, const std::vector<int>& timesteps);

}  // namespace ladder::diffusion

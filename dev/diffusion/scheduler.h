// Samplers of the package diffusers (DDPMScheduler: Ho et al. 2020; DDIMScheduler: Song et al. 2021): the time steps
// that they visit, and a row of coefficients for each.
#pragma once

#include <string_view>
#include <vector>

#include "dev/diffusion/betas.h"

namespace ladder::diffusion {

enum class SchedulerKind { ddpm, ddim };
enum class Prediction { epsilon, sample, v_prediction };  // what the model's output is
enum class Spacing { leading, trailing, linspace };
// Variance of ddpm's noise: the posterior's, at least 1e-20; the same by its logarithm; beta.
enum class Variance { fixed_small, fixed_small_log, fixed_large };

// Fields of diffusers' scheduler_config.json with their defaults, then the arguments of its step().
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
  // Compute coefficients in double from betas in double. Otherwise each operation is rounded to fp32 in diffusers'
  // order, which is less exact (by 3e-4 in a step of 1000) and equal to diffusers' results.
  bool in_double = false;

  // Parses the text of a scheduler_config.json. Throws UsageError, with its name, on a setting that is not supported.
  // Keys of other schedulers have no meaning, as in diffusers.
  static SchedulerConfig from_json(std::string_view text);
};

// Returns the time steps of a sampler of `steps` steps, the last of the process first:
//     leading   i * (num_train_timesteps / steps) + steps_offset, the quotient rounded down
//     trailing  num_train_timesteps - i * num_train_timesteps / steps, rounded, less 1
//     linspace  from num_train_timesteps - 1 to 0 in equal distances, rounded
// Throws UsageError unless 1 <= steps <= num_train_timesteps.
std::vector<int> scheduler_timesteps(const SchedulerConfig& config, int steps);

// Coefficients of one sampler step, from x at its time step to x at the next one. `pred` is the model's output.
//     x0 = clamp((x_scale x - pred_scale pred) x0_scale, -clip, clip)
//     x' = x0_weight x0 + x_weight x + pred_weight pred + sigma noise
// The difference is taken before the scaling by 1 / sqrt(alpha_bar): where alpha_bar is small, x and eps are nearly
// equal, and the difference of scaled terms would lose digits that this form keeps.
struct StepCoefficients {
  float x_scale;     // epsilon: 1                    sample:  0   v_prediction: sqrt(alpha_bar)
  float pred_scale;  //          sqrt(1 - alpha_bar)          -1                 sqrt(1 - alpha_bar)
  float x0_scale;    //          1 / sqrt(alpha_bar)           1                 1
  float clip;        // infinity: no clamp
  float x0_weight;
  float x_weight;
  float pred_weight;  // ddpm: 0
  float sigma;
};
inline constexpr int kStepColumns = sizeof(StepCoefficients) / sizeof(float);

// Returns a row for each of these time steps. The next time step is the next in the list for ddpm, and
// num_train_timesteps / timesteps.size() earlier for ddim, as in diffusers. If the list (ddpm) or the process (ddim)
// has no such time step, the next x is a clean image. ddpm adds no noise at time step 0. Throws UsageError on an
// impossible configuration or time step.
std::vector<StepCoefficients> scheduler_table(const SchedulerConfig& config, const std::vector<int>& timesteps);

}  // namespace ladder::diffusion

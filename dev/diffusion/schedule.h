// The constants of a diffusion process (Ho et al. 2020; Nichol and Dhariwal 2021; Song et al. 2021) in double
// precision, on the host, and the tables of fp32 coefficients that the kernels look them up in. alpha_bar[t] is the
// product of 1 - beta[s] over s <= t, the package diffusers' alphas_cumprod; alpha_bar before the first step is 1.
#pragma once

#include <string_view>
#include <vector>

namespace ladder::diffusion {

inline constexpr int kTimesteps = 1000;

enum class Betas {
  linear,  // from 1e-4 to 0.02
  cosine,  // alpha_bar(t) = cos^2((t + 0.008) / 1.008 pi / 2), beta at most 0.999: "squaredcos_cap_v2"
};

struct Schedule {
  std::vector<double> betas;
  std::vector<double> alphas_cumprod;

  int size() const { return static_cast<int>(betas.size()); }
  double alpha_bar(int t) const { return t < 0 ? 1.0 : alphas_cumprod[t]; }
  // Of q(x[t-1] | x[t], x0): beta[t] (1 - alpha_bar[t-1]) / (1 - alpha_bar[t]). 0 at t = 0.
  double posterior_variance(int t) const { return betas[t] * (1 - alpha_bar(t - 1)) / (1 - alpha_bar(t)); }
};
Schedule make_schedule(Betas betas, int timesteps = kTimesteps);

// Which of the `timesteps` a sampler visits in `steps` steps, the last of the process first, as diffusers names them:
//     leading   i * (timesteps / steps), the quotient rounded down
//     trailing  timesteps - i * timesteps / steps, rounded, less 1
//     linspace  from timesteps - 1 to 0 in equal distances, rounded
// Throws UsageError unless 1 <= steps <= timesteps.
enum class Spacing { leading, trailing, linspace };
std::vector<int> sampled_timesteps(Spacing spacing, int steps, int timesteps = kTimesteps);

// Coefficients of q_sample at a time step: x_t = signal x0 + noise eps.
struct Diffused {
  float signal;  // sqrt(alpha_bar)
  float noise;   // sqrt(1 - alpha_bar)
};
std::vector<Diffused> diffused_table(const Schedule& schedule);

// Coefficients of one step of a sampler, from x at time step t to the one at the next:
//     x0 = clamp(x_scale x - eps_scale eps, -clip, clip)
//     x' = x0_weight x0 + x_weight x + eps_weight eps + sigma noise
struct Step {
  float x_scale;    // 1 / sqrt(alpha_bar)
  float eps_scale;  // sqrt(1 - alpha_bar) / sqrt(alpha_bar)
  float clip;       // the largest float where nothing is clamped
  float x0_weight;
  float x_weight;    // ddim: only where eps is derived anew from the clamped x0
  float eps_weight;  // ddpm: 0
  float sigma;
  float timestep;  // t, for the model's embedding
};
inline constexpr int kStepColumns = sizeof(Step) / sizeof(float);

enum class Variance { fixed_small, fixed_large };

// A row a step. fixed_small is the posterior's variance (at least 1e-20), fixed_large is beta; no noise at t = 0. The
// time step after a step is the next in the list: beta is 1 - alpha_bar[t] / alpha_bar[next].
std::vector<Step> ddpm_table(const Schedule& schedule, const std::vector<int>& timesteps, Variance variance, bool clip);

// The time step after t is t - timesteps / steps, as diffusers has it, before the first one that of a clean image.
// With `clipped_eps` eps is derived anew from the clamped x0, as guided-diffusion does: eps = (x - sqrt(alpha_bar) x0)
// / sqrt(1 - alpha_bar), which the weights of x0 and x contain.
std::vector<Step> ddim_table(const Schedule& schedule, const std::vector<int>& timesteps, double eta, bool clip,
                             bool clipped_eps);

}  // namespace ladder::diffusion

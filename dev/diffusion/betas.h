// The noise of a diffusion process (Ho et al. 2020; Nichol and Dhariwal 2021), on the host. alpha_bar[t] is the product
// of 1 - beta[s] over s <= t, the package diffusers' alphas_cumprod; alpha_bar before the first step is 1.
#pragma once

#include <string_view>
#include <vector>

namespace ladder::diffusion {

inline constexpr int kTimesteps = 1000;

enum class Betas {
  linear,         // from `first` to `last`
  scaled_linear,  // their square roots are linear
  cosine,         // alpha_bar(t) = cos^2((t + 0.008) / 1.008 pi / 2), beta at most 0.999: "squaredcos_cap_v2"
};

// Betas in double, or in fp32 with the bits that diffusers has: linspace() is PyTorch's on a CPU with a fused
// multiply-add (on another CPU, diffusers itself has other bits).
template <class Real>
std::vector<Real> make_betas(Betas betas, int timesteps, double first = 1e-4, double last = 0.02);

// Products of 1 - beta: each factor is rounded to Real, the product is made in double, as by torch.cumprod on a CPU.
template <class Real>
std::vector<Real> cumulative_alphas(const std::vector<Real>& betas);

struct Schedule {
  std::vector<double> betas;
  std::vector<double> alphas_cumprod;

  double alpha_bar(int t) const { return t < 0 ? 1.0 : alphas_cumprod[t]; }
  // Variance of q(x[t-1] | x[t], x0): beta[t] (1 - alpha_bar[t-1]) / (1 - alpha_bar[t]). 0 at t = 0.
  double posterior_variance(int t) const { return betas[t] * (1 - alpha_bar(t - 1)) / (1 - alpha_bar(t)); }
};
Schedule make_schedule(Betas betas, int timesteps = kTimesteps);

// Coefficients of q_sample at a time step: x_t = signal x0 + noise eps.
struct Diffused {
  float signal;  // sqrt(alpha_bar)
  float noise;   // sqrt(1 - alpha_bar)
};
std::vector<Diffused> diffused_table(const Schedule& schedule);

}  // namespace ladder::diffusion

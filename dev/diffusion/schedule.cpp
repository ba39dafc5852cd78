#include "dev/diffusion/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "core/error.h"

namespace ladder::diffusion {
namespace {

double cosine_alpha_bar(double t) {
  const double c = std::cos((t + 0.008) / 1.008 * std::numbers::pi / 2);
  return c * c;
}

// What ddpm and ddim have in common.
Step prediction(double alpha_bar, bool clip, int t) {
  Step step{};
  step.x_scale = static_cast<float>(1 / std::sqrt(alpha_bar));
  step.eps_scale = static_cast<float>(std::sqrt(1 - alpha_bar) / std::sqrt(alpha_bar));
  step.clip = clip ? 1.0f : std::numeric_limits<float>::max();
  step.timestep = static_cast<float>(t);
  return step;
}

}  // namespace

Schedule make_schedule(Betas betas, int timesteps) {
  Schedule schedule;
  double product = 1;
  for (int t = 0; t < timesteps; ++t) {
    double beta = 1e-4 + (0.02 - 1e-4) * t / std::max(timesteps - 1, 1);
    if (betas == Betas::cosine) {
      const double ratio = cosine_alpha_bar((t + 1.0) / timesteps) / cosine_alpha_bar(double(t) / timesteps);
      beta = std::min(1 - ratio, 0.999);
    }
    product *= 1 - beta;
    schedule.betas.push_back(beta);
    schedule.alphas_cumprod.push_back(product);
  }
  return schedule;
}

std::vector<int> sampled_timesteps(Spacing spacing, int steps, int timesteps) {
  if (steps < 1 || steps > timesteps) {
    throw UsageError("a sampler of " + std::to_string(steps) + " steps: 1 to " + std::to_string(timesteps) +
                     " are right");
  }
  std::vector<int> sampled;
  for (int i = 0; i < steps; ++i) {
    // std::nearbyint rounds halves to even, as NumPy does.
    if (spacing == Spacing::leading) {
      sampled.push_back((steps - 1 - i) * (timesteps / steps));
    } else if (spacing == Spacing::trailing) {
      sampled.push_back(static_cast<int>(std::nearbyint(timesteps - i * (double(timesteps) / steps))) - 1);
    } else {
      const double distance = steps > 1 ? double(timesteps - 1) / (steps - 1) : 0;
      sampled.push_back(static_cast<int>(std::nearbyint((steps - 1 - i) * distance)));
    }
  }
  return sampled;
}

std::vector<Diffused> diffused_table(const Schedule& schedule) {
  std::vector<Diffused> table;
  for (const double alpha_bar : schedule.alphas_cumprod) {
    table.push_back({static_cast<float>(std::sqrt(alpha_bar)), static_cast<float>(std::sqrt(1 - alpha_bar))});
  }
  return table;
}

std::vector<Step> ddpm_table(const Schedule& schedule, const std::vector<int>& timesteps, Variance variance,
                             bool clip) {
  std::vector<Step> table;
  for (std::size_t i = 0; i < timesteps.size(); ++i) {
    const int t = timesteps[i];
    const double alpha_bar = schedule.alpha_bar(t);
    const double next = schedule.alpha_bar(i + 1 < timesteps.size() ? timesteps[i + 1] : -1);
    const double beta = 1 - alpha_bar / next;
    Step step = prediction(alpha_bar, clip, t);
    step.x0_weight = static_cast<float>(std::sqrt(next) * beta / (1 - alpha_bar));
    step.x_weight = static_cast<float>(std::sqrt(alpha_bar / next) * (1 - next) / (1 - alpha_bar));
    const double small = std::max((1 - next) / (1 - alpha_bar) * beta, 1e-20);
    if (t > 0) step.sigma = static_cast<float>(std::sqrt(variance == Variance::fixed_small ? small : beta));
    table.push_back(step);
  }
  return table;
}

std::vector<Step> ddim_table(const Schedule& schedule, const std::vector<int>& timesteps, double eta, bool clip,
                             bool clipped_eps) {
  const int stride = schedule.size() / static_cast<int>(timesteps.size());
  std::vector<Step> table;
  for (const int t : timesteps) {
    const double alpha_bar = schedule.alpha_bar(t);
    const double next = schedule.alpha_bar(t - stride);
    const double variance = (1 - next) / (1 - alpha_bar) * (1 - alpha_bar / next);
    const double sigma = eta * std::sqrt(variance);
    const double direction = std::sqrt(std::max(1 - next - sigma * sigma, 0.0));
    Step step = prediction(alpha_bar, clip, t);
    step.sigma = static_cast<float>(sigma);
    if (clipped_eps) {
      step.x0_weight =
          static_cast<float>(std::sqrt(next) - direction * std::sqrt(alpha_bar) / std::sqrt(1 - alpha_bar));
      step.x_weight = static_cast<float>(direction / std::sqrt(1 - alpha_bar));
    } else {
      step.x0_weight = static_cast<float>(std::sqrt(next));
      step.eps_weight = static_cast<float>(direction);
    }
    table.push_back(step);
  }
  return table;
}

}  // namespace ladder::diffusion

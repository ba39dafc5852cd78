#include "dev/diffusion/betas.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace ladder::diffusion {
namespace {

double cosine_alpha_bar(double t) {
  const double c = std::cos((t + 0.008) / 1.008 * std::numbers::pi / 2);
  return c * c;
}

template <class Real>
std::vector<Real> linspace(Real first, Real last, int count) {
  std::vector<Real> values(count, first);
  const Real distance = (last - first) / static_cast<Real>(std::max(count - 1, 1));
  for (int i = 1; i < count; ++i) {
    // PyTorch counts the second half from the end.
    values[i] = i < count / 2 ? std::fma(distance, static_cast<Real>(i), first)
                              : std::fma(-distance, static_cast<Real>(count - 1 - i), last);
  }
  return values;
}

}  // namespace

template <class Real>
std::vector<Real> make_betas(Betas betas, int timesteps, double first, double last) {
  if (betas == Betas::linear) return linspace(static_cast<Real>(first), static_cast<Real>(last), timesteps);
  std::vector<Real> made;
  if (betas == Betas::scaled_linear) {
    made = linspace(static_cast<Real>(std::sqrt(first)), static_cast<Real>(std::sqrt(last)), timesteps);
    for (Real& beta : made) beta *= beta;
    return made;
  }
  for (int t = 0; t < timesteps; ++t) {
    const double ratio = cosine_alpha_bar((t + 1.0) / timesteps) / cosine_alpha_bar(double(t) / timesteps);
    made.push_back(static_cast<Real>(std::min(1 - ratio, 0.999)));
  }
  return made;
}
template std::vector<float> make_betas<float>(Betas, int, double, double);
template std::vector<double> make_betas<double>(Betas, int, double, double);

template <class Real>
std::vector<Real> cumulative_alphas(const std::vector<Real>& betas) {
  std::vector<Real> products(betas.size());
  double product = 1;
  for (std::size_t t = 0; t < betas.size(); ++t) products[t] = static_cast<Real>(product *= Real{1} - betas[t]);
  return products;
}
template std::vector<float> cumulative_alphas<float>(const std::vector<float>&);
template std::vector<double> cumulative_alphas<double>(const std::vector<double>&);

Schedule make_schedule(Betas betas, int timesteps) {
  Schedule schedule{.betas = make_betas<double>(betas, timesteps), .alphas_cumprod = {}};
  schedule.alphas_cumprod = cumulative_alphas(schedule.betas);
  return schedule;
}

std::vector<Diffused> diffused_table(const Schedule& schedule) {
  std::vector<Diffused> table;
  for (const double alpha_bar : schedule.alphas_cumprod) {
    table.push_back({static_cast<float>(std::sqrt(alpha_bar)), static_cast<float>(std::sqrt(1 - alpha_bar))});
  }
  return table;
}

}  // namespace ladder::diffusion

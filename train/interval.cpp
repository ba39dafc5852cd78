#include "train/interval.h"

#include <cmath>

#include <fmt/format.h>

#include "dev/diffusion/scheduler.h"

namespace ladder::train {

void Interval::add(const StepResults& results, const std::vector<std::int32_t>& t) {
  ++steps;
  loss += results.loss;
  norm += results.norm;
  for (std::size_t i = 0; i < results.losses.size(); ++i) {
    const int quartile = t[i] * 4 / diffusion::kTimesteps;
    quartile_loss[quartile] += results.losses[i];
    ++quartile_images[quartile];
  }
}

std::string duration(double seconds) {
  const std::int64_t s = std::llround(seconds);
  if (s >= 3600) return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
  if (s >= 60) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} s", s);
}

}  // namespace ladder::train

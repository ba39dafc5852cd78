#include "policy/sampling_schedule.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace ladder::denoise {

using diffusion::SchedulerKind;

SamplingSchedule::SamplingSchedule(const diffusion::SchedulerConfig& scheduler, std::optional<int> count)
    : config(scheduler) {
  const int steps = count.value_or(config.num_train_timesteps);
  if (steps < 1 || steps > config.num_train_timesteps) {
    throw UsageError(fmt::format("{} steps: from 1 to {}, as many as the scheduler was trained with", steps,
                                 config.num_train_timesteps));
  }
  timesteps = diffusion::scheduler_timesteps(config, steps);
  rows = diffusion::scheduler_table(config, timesteps);
}

SamplingSchedule::SamplingSchedule(const diffusion::SchedulerConfig& scheduler, std::vector<int> visited)
    : config(scheduler), timesteps(std::move(visited)) {
  if (timesteps.empty()) throw UsageError("the scheduler's timesteps are empty: at least one is right");
  rows = diffusion::scheduler_table(config, timesteps);
}

int SamplingSchedule::num_drawn() const {
  if (!noisy()) return 0;
  const bool at_last = config.kind == SchedulerKind::ddim || timesteps.back() > 0;
  return static_cast<int>(timesteps.size()) - (at_last ? 0 : 1);
}

Case SamplingSchedule::case_of(const diffusion::Problem& shape) const {
  diffusion::Problem p = shape;
  p.steps = static_cast<int>(rows.size());
  p.cosine = config.beta_schedule == diffusion::Betas::cosine;
  p.no_clip = !config.clip_sample;
  if (config.kind == SchedulerKind::ddpm) return ladder::case_of<diffusion::DdpmStep>(p);
  p.eta = noisy() ? std::clamp(static_cast<int>(std::lround(100 * config.eta)), 1, 100) : 0;  // per cent
  return ladder::case_of<diffusion::DdimStep>(p);
}

std::string SamplingSchedule::str() const {
  return fmt::format("{} {} steps of {}", rows.size(), config.kind == SchedulerKind::ddpm ? "ddpm" : "ddim",
                     config.num_train_timesteps);
}

diffusion::SchedulerConfig scheduler_of(nlohmann::json fields, const std::string& kind,
                                        std::vector<std::string>& notes) {
  if (!kind.empty()) fields["_class_name"] = kind == "ddim" ? "DDIMScheduler" : "DDPMScheduler";
  const nlohmann::json published = {{"_class_name", "DDPMScheduler"},
                                    {"num_train_timesteps", 100},
                                    {"beta_schedule", "squaredcos_cap_v2"},
                                    {"prediction_type", "epsilon"},
                                    {"clip_sample", true}};
  std::vector<std::string> taken;
  for (const auto& [key, value] : published.items()) {
    if (fields.contains(key)) continue;
    fields[key] = value;
    taken.push_back(fmt::format("{} {}", key, value.is_string() ? value.get<std::string>() : value.dump()));
  }
  if (!taken.empty()) notes.push_back(fmt::format("the scheduler's {}: by default", fmt::join(taken, ", ")));
  return diffusion::SchedulerConfig::from_json(fields.dump());
}

}  // namespace ladder::denoise

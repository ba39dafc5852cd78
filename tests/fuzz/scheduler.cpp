// The reader of diffusers' scheduler_config.json, and the table of a scheduler that it takes.
#include "dev/diffusion/scheduler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ladder::diffusion;
  try {
    const SchedulerConfig config = SchedulerConfig::from_json({reinterpret_cast<const char*>(data), size});
    const int steps = std::min(config.num_train_timesteps, 20);
    if (config.num_train_timesteps > 2000) return 0;  // a table takes long
    for (const StepCoefficients& step : scheduler_table(config, scheduler_timesteps(config, steps))) {
      if (std::isnan(step.x0_weight) || std::isnan(step.sigma)) std::abort();
    }
  } catch (const ladder::UsageError&) {
  }
  return 0;
}

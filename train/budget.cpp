#include "train/budget.h"

#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/backend.h"
#include "core/error.h"
#include "io/aside_file.h"
#include "train/peak.h"
#include "train/step_bench.h"

namespace ladder::train {
namespace {

using Json = nlohmann::json;

// The least time that an operation can take: its arithmetic at the device's peak, or its bytes at the memory's rate.
double lower_bound_us(const Case& c) {
  const double arithmetic = c.flops / (peak_tflops(c.dtype) * 1e12);
  const double rate = backend::device().dram_bytes_per_s;
  return 1e6 * std::max(arithmetic, rate > 0 ? c.traffic.bytes() / rate : 0.0);
}

}  // namespace

int explain(const TrainingConfig& config, const TrainingOptions& options) {
  TrainingOptions unlaunched = options;
  unlaunched.graph = false;
  StepBench bench(config, unlaunched);
  const std::unique_ptr<Step> step = bench.step(bench.promotions());
  for (const Program* program : step->programs()) {
    for (std::size_t i = 0; i < program->tape().operations().size(); ++i) {
      const Operation& operation = program->tape().operations()[i];
      const VersionChoice& choice = program->choice(i);
      fmt::print("{:<36} {:<24} {:<52} {:<26} {}\n", operation.name, operation.problem.pass->path(),
                 operation.problem.text, choice.version->label(), choice.reason);
    }
  }
  return 0;
}

int budget(const TrainingConfig& config, const TrainingOptions& options, const std::filesystem::path& file) {
  if (backend::kind() != backend::Kind::gpu) throw Failure("--budget times kernels: it needs a GPU");
  constexpr int kWarmUp = 20;
  constexpr int kSteps = 200;
  constexpr int kRepeats = 50;
  StepBench bench(config, options);
  const std::unique_ptr<Step> step = bench.step(bench.promotions());
  const double seconds = bench.seconds_a_step(*step, kWarmUp, kSteps);
  Json operations = Json::array();
  for (const Step::Timed& timed : step->time_operations(kRepeats)) {
    operations.push_back({{"layer", timed.operation->name},
                          {"pass", timed.operation->problem.pass->path()},
                          {"problem", timed.operation->problem.text},
                          {"version", timed.choice->version->label()},
                          {"why", timed.choice->reason},
                          {"us", timed.us},
                          {"lower_bound_us", lower_bound_us(timed.operation->problem)}});
  }
  const double tflops = step->flops() / seconds * 1e-12;
  const auto bytes = static_cast<double>(bench.bytes() + step->bytes());
  Json result = record_of(config, "ladder.budget/1");
  result.update({{"graph", options.graph},
                 {"steps_timed", kSteps},
                 {"ms_a_step", 1e3 * seconds},
                 {"tflops", tflops},
                 {"device_bytes", bytes},
                 {"graph_nodes", step->num_nodes()},
                 {"operations", operations}});
  io::write_text(file, result.dump(1) + "\n");
  fmt::print("{:.3f} ms a step, {:.0f} images/s, {:.0f} TFLOP/s, {:.0f} MiB: {}\n", 1e3 * seconds,
             config.batch / seconds, tflops, bytes / (1 << 20), file.string());
  return 0;
}

}  // namespace ladder::train

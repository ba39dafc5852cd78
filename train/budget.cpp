#include "train/budget.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/backend.h"
#include "core/error.h"
#include "io/aside_file.h"
#include "runtime/chosen_versions.h"
#include "train/peak.h"
#include "train/step_bench.h"
#include "train/step_times.h"

namespace ladder::train {
namespace {

using Json = nlohmann::json;

// Highest fractions of the device's peaks reached on an H200: 750 of 1070.5 TFLOP/s for dense bf16 products that
// prefetch the next tiles, because clocks then fall to the power limit, and 4.0 of 4.8 TB/s for a streaming kernel.
constexpr double kArithmeticReached = 750.0 / 1070.5;
constexpr double kMemoryReached = 4.0 / 4.8;

// Roofline time of an operation: the longer of its arithmetic and its memory traffic, at the given fractions of the
// device's peaks.
double bound_us(const Case& c, double of_arithmetic, double of_memory) {
  const double arithmetic = c.flops / (of_arithmetic * peak_tflops(c.dtype) * 1e12);
  const double rate = of_memory * backend::device().dram_bytes_per_s;
  return 1e6 * std::max(arithmetic, rate > 0 ? c.traffic.bytes() / rate : 0.0);
}

Json json_of(const StepTimes::Timed& timed) {
  Json json = {{"us", timed.time.busy_us + timed.time.gap_us},
               {"gap_us", timed.time.gap_us},
               {"overlap_us", timed.time.overlap_us}};
  if (!timed.operation) {
    json.update({{"layer", ""}, {"pass", "copies"}, {"problem", ""}, {"version", ""}, {"why", ""}});
    json.update({{"lower_bound_us", 0.0}, {"realistic_us", 0.0}});  // copies are avoidable
    return json;
  }
  const Case& problem = timed.operation->problem;
  json.update({{"layer", timed.operation->name},
               {"pass", problem.pass->path()},
               {"problem", problem.text},
               {"version", timed.choice->version->label()},
               {"why", timed.choice->reason},
               {"beside", timed.operation->side_stream},
               {"lower_bound_us", timed.runs * bound_us(problem, 1, 1)},
               {"realistic_us", timed.runs * bound_us(problem, kArithmeticReached, kMemoryReached)}});
  return json;
}

}  // namespace

int explain(const TrainingConfig& config, const TrainingOptions& options) {
  TrainingOptions unlaunched = options;
  unlaunched.graph = false;
  Ranks one;
  StepBench bench(config, unlaunched, one);
  const std::unique_ptr<Step> step = bench.step(bench.promotions());
  for (const Program* program : step->programs()) explain(*program);
  return 0;
}

int budget(const TrainingConfig& config, const TrainingOptions& options, const std::filesystem::path& file) {
  if (backend::kind() != backend::Kind::gpu) throw Failure("--budget times kernels: it needs a GPU");
  constexpr int kWarmUp = 20;
  constexpr int kSteps = 200;
  constexpr int kRepeats = 50;
  Ranks one;
  StepBench bench(config, options, one);
  const std::unique_ptr<Step> step = bench.step(bench.promotions());
  const double seconds = bench.seconds_a_step(*step, kWarmUp, kSteps);
  const StepTimes times = time_step(*step, kRepeats);
  Json operations = Json::array();
  double span_us = 0;
  for (const StepTimes::Timed& timed : times.operations) {
    operations.push_back(json_of(timed));
    span_us += timed.time.busy_us + timed.time.gap_us;
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
                 {"plain_edges", times.edges.plain},
                 {"programmatic_edges", times.edges.programmatic},
                 {"timed_by", times.by},
                 {"span_us", span_us},
                 {"operations", operations}});
  io::write_text(file, result.dump(1) + "\n");
  fmt::print("{:.3f} ms a step, {:.0f} images/s, {:.0f} TFLOP/s, {:.0f} MiB: {}\n", 1e3 * seconds,
             config.batch / seconds, tflops, bytes / (1 << 20), file.string());
  fmt::print("operations by {}: {:.3f} ms; {} programmatic edges, {} plain ones\n", times.by, 1e-3 * span_us,
             times.edges.programmatic, times.edges.plain);
  return 0;
}

}  // namespace ladder::train

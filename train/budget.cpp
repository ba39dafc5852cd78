#include "train/budget.h"

#include <chrono>
#include <ctime>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "build_info.h"
#include "core/backend.h"
#include "core/error.h"
#include "io/aside_file.h"
#include "nn/models/unet2d.h"
#include "train/dataset.h"
#include "train/image_source.h"
#include "train/peak.h"
#include "train/step.h"

namespace ladder::train {
namespace {

using Json = nlohmann::json;

// A step with everything it needs, on the first images of the data.
class Bench {
 public:
  Bench(const TrainingConfig& config, const TrainingOptions& options)
      : config_(config),
        data_(options.data),
        model_(config.model),
        parameters_(model_.declare()),
        state_(parameters_, config.dtype),
        promotions_(Promotions::for_device(backend::device().slug)),
        source_(data_, config.batch, options.device_data_bytes),
        objective_(denoising_options(config, source_.images()), model_, source_.pixels()) {
    if (!options.use.empty()) promotions_.use(options.use);
    const std::vector<float> start = parameters_.initial(config.seed);
    state_.set_values(start);
    state_.set(state_.average, start);
    step_ = std::make_unique<Step>(StepOptions{.dtype = config.dtype, .clip = config.clip > 0, .graph = options.graph},
                                   objective_, parameters_, state_, promotions_);
  }

  Step& step() { return *step_; }

  // Seconds of each of `count` steps after one another, of which the first few are left out.
  double seconds_a_step(int count) {
    constexpr int kWarmUp = 20;
    Event begin;
    Event end;
    for (int i = 0; i < kWarmUp + count; ++i) {
      if (i == kWarmUp) begin.record(step_->stream());
      DenoisingInputs inputs = denoising_inputs(config_, i + 1);
      std::vector<std::int32_t> batch;
      batch.reserve(static_cast<std::size_t>(config_.batch));
      for (int j = 0; j < config_.batch; ++j)
        batch.push_back((i * config_.batch + j) % static_cast<int>(data_.num_training()));
      inputs.index = source_.place(batch, step_->stream());
      step_->submit({.batch = inputs.bytes(), .hyper = hyper(config_, i + 1)});
      source_.release(step_->stream());
    }
    end.record(step_->stream());
    while (step_->collect()) {
    }
    end.synchronize();
    return end.seconds_since(begin) / count;
  }

  double bytes() const {
    return static_cast<double>(step_->bytes() + objective_.bytes() + state_.bytes() + source_.pixels().bytes);
  }

 private:
  TrainingConfig config_;
  Dataset data_;
  nn::Unet2d model_;
  nn::Parameters parameters_;
  nn::State state_;
  Promotions promotions_;
  ImageSource source_;
  Denoising objective_;
  std::unique_ptr<Step> step_;
};

// The least time that an operation can take: its arithmetic at the device's peak, or its bytes at the memory's rate.
double lower_bound_us(const Case& c) {
  const double arithmetic = c.flops / (peak_tflops(c.dtype) * 1e12);
  const double rate = backend::device().dram_bytes_per_s;
  return 1e6 * std::max(arithmetic, rate > 0 ? c.traffic.bytes() / rate : 0.0);
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace

int explain(const TrainingConfig& config, const TrainingOptions& options) {
  TrainingOptions unlaunched = options;
  unlaunched.graph = false;
  Bench bench(config, unlaunched);
  for (const Program* program : bench.step().programs()) {
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
  constexpr int kSteps = 200;
  constexpr int kRepeats = 50;
  Bench bench(config, options);
  const double seconds = bench.seconds_a_step(kSteps);
  Json operations = Json::array();
  for (const Step::Timed& timed : bench.step().time_operations(kRepeats)) {
    operations.push_back({{"layer", timed.operation->name},
                          {"pass", timed.operation->problem.pass->path()},
                          {"problem", timed.operation->problem.text},
                          {"version", timed.choice->version->label()},
                          {"why", timed.choice->reason},
                          {"us", timed.us},
                          {"lower_bound_us", lower_bound_us(timed.operation->problem)}});
  }
  const backend::DeviceInfo& device = backend::device();
  const Json result = {{"schema", "ladder.budget/1"},
                       {"created", utc_now()},
                       {"commit", build_info::kCommit},
                       {"dirty", build_info::kDirty},
                       {"device", device.name},
                       {"driver", device.driver},
                       {"config", config},
                       {"graph", options.graph},
                       {"steps_timed", kSteps},
                       {"ms_a_step", 1e3 * seconds},
                       {"tflops", bench.step().flops() / seconds * 1e-12},
                       {"device_bytes", bench.bytes()},
                       {"graph_nodes", bench.step().num_nodes()},
                       {"operations", operations}};
  io::write_text(file, result.dump(1) + "\n");
  fmt::print("{:.3f} ms a step, {:.0f} images/s, {:.0f} TFLOP/s, {:.0f} MiB: {}\n", 1e3 * seconds,
             config.batch / seconds, bench.step().flops() / seconds * 1e-12, bench.bytes() / (1 << 20), file.string());
  return 0;
}

}  // namespace ladder::train

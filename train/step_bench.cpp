#include "train/step_bench.h"

#include <chrono>
#include <ctime>
#include <vector>

#include <nlohmann/json.hpp>

#include "build_info.h"
#include "core/backend.h"
#include "runtime/chosen_versions.h"
#include "train/training.h"

namespace ladder::train {
namespace {

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace

StepBench::StepBench(const TrainingConfig& config, const TrainingOptions& options, Ranks& ranks)
    : config_(config),
      ranks_(ranks),
      data_(options.data),
      model_(config.model),
      parameters_(model_.declare()),
      promotions_(chosen_versions(config.dtype, options.use)),
      state_(parameters_, config.dtype) {
  check_batch(config, options, ranks.size());
  if (ranks.size() > 1) {
    ranks.compare(data_.digest(), promotions_.str());
    ranks.connect();
  }
  options_ = step_options(config, options, ranks.communicator());
  source_ = std::make_unique<ImageSource>(data_, config.batch / ranks.size(), options.device_data_bytes);
  EpsilonOptions of_rank = epsilon_options(config, source_->images());
  of_rank.batch /= ranks.size();
  objective_.emplace(of_rank, model_, source_->pixels());
  const std::vector<float> start = parameters_.initial(config.seed);
  state_.set_values(start);
  state_.set(state_.average, start);
}

std::unique_ptr<Step> StepBench::step(const Promotions& promotions, const StepOptions& options) {
  return std::make_unique<Step>(options, *objective_, parameters_, state_, promotions);
}

std::optional<StepResults> StepBench::submit(Step& step, int number, std::optional<float> lr) {
  const int batch = objective_->batch();
  const int first = ranks_.rank() * batch;
  EpsilonInputs inputs = rows_of(epsilon_inputs(config_, number), first, batch);
  std::vector<std::int32_t> images;
  images.reserve(static_cast<std::size_t>(batch));
  for (int i = 0; i < batch; ++i) {
    images.push_back(((number - 1) * config_.batch + first + i) % static_cast<int>(data_.num_training()));
  }
  inputs.index = source_->load(images, step.stream());
  optimizer::Hyper update = hyper(config_, number);
  if (lr) update.lr = *lr;
  std::optional<StepResults> oldest = step.submit({.batch = inputs.bytes(), .hyper = update});
  source_->release(step.stream());
  return oldest;
}

double StepBench::seconds_a_step(Step& step, int warm_up, int count) {
  Event begin;
  Event end;
  for (int i = 0; i < warm_up + count; ++i) {
    if (i == warm_up) begin.record(step.stream());
    submit(step, i + 1);
  }
  end.record(step.stream());
  while (step.collect()) {
  }
  end.synchronize();
  return end.seconds_since(begin) / count;
}

nlohmann::json record_of(const TrainingConfig& config, const char* schema) {
  const backend::DeviceInfo& device = backend::device();
  return {{"schema", schema},
          {"created", utc_now()},
          {"commit", build_info::kCommit},
          {"dirty", build_info::kDirty},
          {"device", device.name},
          {"driver", device.driver},
          {"config", config}};
}

}  // namespace ladder::train

#include "train/model_files.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/backend.h"
#include "core/error.h"
#include "core/json_fields.h"
#include "io/digest.h"
#include "io/layout.h"
#include "io/png.h"

namespace ladder::train {

using Json = nlohmann::json;

std::vector<ExpectedTensor> expected_tensors(const nn::Parameters& parameters) {
  std::vector<ExpectedTensor> expected;
  for (const nn::Parameter& p : parameters.all()) expected.push_back({p.name, p.shape});
  return expected;
}

std::vector<float> file_values(const nn::Parameter& p, const std::vector<float>& flat) {
  const auto begin = flat.begin() + p.begin;
  return io::from_krsc(std::vector<float>(begin, begin + p.elements()), p.shape);
}

void set_file_values(const nn::Parameter& p, const std::vector<float>& values, std::vector<float>& flat) {
  if (static_cast<std::int64_t>(values.size()) != p.elements()) {
    throw Failure(fmt::format("{} has {} elements, not {}", p.name, p.elements(), values.size()));
  }
  std::ranges::copy(io::to_krsc(values, p.shape), flat.begin() + p.begin);
}

std::vector<float> read_weights(const std::filesystem::path& file, const nn::Parameters& parameters) {
  const auto weights = import_weights(file, expected_tensors(parameters));
  std::vector<float> flat(parameters.size(), 0.0f);
  for (const nn::Parameter& p : parameters.all()) {
    const std::vector<float>& values = weights.at(p.name);
    if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
      throw Failure(fmt::format("'{}': tensor '{}' has a weight that is not finite", file.string(), p.name));
    }
    set_file_values(p, values, flat);
  }
  return flat;
}

std::filesystem::path save_checkpoint(const std::filesystem::path& run, const TrainingConfig& config,
                                      const nn::Parameters& parameters, const nn::State& state,
                                      const Progress& progress, int keep) {
  Checkpoint checkpoint;
  checkpoint.metadata = {{"step", std::to_string(progress.step)},
                         {"images", std::to_string(progress.step * config.batch)},
                         {"seed", std::to_string(config.seed)},
                         {"config", Json(config).dump()},
                         {"qkv_order", "[heads][q, k, v][channels]"},
                         {"skipped", std::to_string(progress.skipped)},
                         {"data_digest", progress.data_digest},
                         {"promotions", progress.promotions},
                         {"device", progress.device}};
  if (progress.ranks > 1) checkpoint.metadata["ranks"] = std::to_string(progress.ranks);
  const std::vector<float> values = state.get(state.values);
  const std::vector<float> average = state.get(state.average);
  const std::vector<float> m = state.get(state.first_moments);
  const std::vector<float> v = state.get(state.second_moments);
  for (const nn::Parameter& p : parameters.all()) {
    checkpoint.tensors.push_back({.name = p.name,
                                  .shape = p.shape,
                                  .weight = file_values(p, values),
                                  .ema = file_values(p, average),
                                  .m = file_values(p, m),
                                  .v = file_values(p, v)});
  }
  const auto folder = write_checkpoint(run, checkpoint);
  prune(run, keep);
  return folder;
}

Resumed resume(const std::filesystem::path& run, const TrainingConfig& config, const nn::Parameters& parameters,
               nn::State& state) {
  std::vector<std::string> damaged;
  const Checkpoint checkpoint = read_newest(run, damaged);
  const TrainingConfig before = config_of(checkpoint.metadata);
  if (!(before.model == config.model)) {
    throw Failure(
        fmt::format("the checkpoint in '{}' is of another model: {}", run.string(), Json(before.model).dump()));
  }
  expect(fmt::format("the checkpoint in '{}'", run.string()), checkpoint, expected_tensors(parameters));
  std::vector<float> values(parameters.size(), 0.0f), average = values, m = values, v = values;
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    const nn::Parameter& p = parameters[tensor.name];
    set_file_values(p, tensor.weight, values);
    set_file_values(p, tensor.ema, average);
    set_file_values(p, tensor.m, m);
    set_file_values(p, tensor.v, v);
  }
  state.set_values(values);
  state.set(state.average, average);
  state.set(state.first_moments, m);
  state.set(state.second_moments, v);
  return {
      {.step = number_in(checkpoint.metadata, "step"),
       .skipped = number_in(checkpoint.metadata, "skipped"),
       .data_digest = text_in(checkpoint.metadata, "data_digest"),
       .promotions = text_in(checkpoint.metadata, "promotions"),
       .device = text_in(checkpoint.metadata, "device"),
       .ranks = checkpoint.metadata.contains("ranks") ? static_cast<int>(number_in(checkpoint.metadata, "ranks")) : 1},
      before,
      std::move(damaged)};
}

std::string weights_digest(const nn::State& state) {
  io::Digest digest;
  for (const OwnedRegion* region : {&state.values, &state.average}) {
    const std::vector<float> values = state.get(*region);
    digest.add(values.data(), values.size() * sizeof(float));
  }
  return digest.hex();
}

TrainingConfig config_of(const io::Metadata& metadata) {
  try {
    return parse_object(text_in(metadata, "config"), "it").get<TrainingConfig>();
  } catch (const UsageError& error) {
    throw Failure(fmt::format("the checkpoint's configuration cannot be read: {}", error.what()));
  }
}

void write_grid(const std::filesystem::path& file, const std::vector<float>& images, int side) {
  const auto count = static_cast<int>(images.size() / (static_cast<std::size_t>(side) * side * nn::kImageChannels));
  const int columns = std::max(1, static_cast<int>(std::ceil(std::sqrt(count))));
  io::write_png(file, io::grid(images.data(), count, side, columns));
}

}  // namespace ladder::train

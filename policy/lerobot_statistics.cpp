#include "policy/lerobot_statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "io/text_file.h"

namespace ladder::denoise {
namespace {

using nlohmann::json;

struct Mode {
  const char *name, *center, *spread;  // and the names of its two statistics
};
constexpr std::array<Mode, 4> kModes = {{{"MEAN_STD", "mean", "std"},
                                         {"MIN_MAX", "min", "max"},
                                         {"QUANTILES", "q01", "q99"},
                                         {"QUANTILE10", "q10", "q90"}}};

// Steps that move, rename or stack tensors and change no number.
constexpr std::array<std::string_view, 3> kHarmless = {"device_processor", "to_batch_processor",
                                                       "rename_observations_processor"};

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::vector<double> read(const io::SafetensorsFile& file, const std::string& name, const Feature& feature) {
  const std::string shown = fmt::format("'{}': tensor '{}'", file.path().string(), name);
  const io::StoredTensor* const tensor = file.find(name);
  if (tensor == nullptr) throw Failure(fmt::format("{} is missing", shown));
  if (static_cast<std::int64_t>(tensor->elements()) != feature.size) {
    throw Failure(fmt::format("{} has shape {} instead of [{}]", shown, io::to_string(tensor->shape), feature.size));
  }
  const std::vector<float> values = file.floats(name);
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
    throw Failure(fmt::format("{} has a number that is not finite", shown));
  }
  return {values.begin(), values.end()};
}

// Reads the two tensors that `mode` needs, named `prefix` and the statistic.
Statistics read_pair(const io::SafetensorsFile& file, const std::string& prefix, const std::string& mode,
                     const std::string& mode_source, const Feature& feature) {
  const auto* const found = std::ranges::find(kModes, std::string_view(mode), &Mode::name);
  if (found == kModes.end()) {
    throw Failure(
        fmt::format("{}: the normalisation of {}, '{}', is not supported; there are: IDENTITY, MEAN_STD, MIN_MAX, "
                    "QUANTILES, QUANTILE10",
                    mode_source, feature.type, one_line(mode, 60)));
  }
  return {.mode = mode,
          .center = read(file, prefix + found->center, feature),
          .spread = read(file, prefix + found->spread, feature)};
}

// Returns the mode that config.json gives a feature; empty if it gives none. Versions before 2025 have a mode for each
// feature's name, in small letters; later ones a mode for each type.
std::string mode_of(const json& config, const Feature& feature) {
  if (const auto mapping = config.find("normalization_mapping"); mapping != config.end() && mapping->is_object()) {
    const std::string mode = text_of(*mapping, feature.type.c_str());
    return mode.empty() ? "IDENTITY" : mode;
  }
  const auto modes = config.find(feature.type == "ACTION" ? "output_normalization_modes" : "input_normalization_modes");
  if (modes == config.end() || !modes->is_object()) return {};
  std::string mode = text_of(*modes, feature.name.c_str());
  std::ranges::transform(mode, mode.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return mode.empty() ? "IDENTITY" : mode;
}

// Returns the full prefix, "module.unnormalize_outputs.buffer_action.", of the tensors of `buffer`; empty without any.
std::string prefix_of(const io::SafetensorsFile& model, const std::string& buffer) {
  for (const io::StoredTensor& tensor : model.tensors()) {
    const std::size_t position = tensor.name.find(buffer);
    if (position == std::string::npos || (position > 0 && tensor.name[position - 1] != '.')) continue;
    return tensor.name.substr(0, position + buffer.size());
  }
  return {};
}

}  // namespace

Affine normalization(const Statistics& s, int size) {
  Affine map{std::vector<double>(size, 1), std::vector<double>(size, 0)};
  for (std::size_t i = 0; i < s.center.size(); ++i) {
    if (s.mode == "MEAN_STD") {
      map.scale[i] = 1 / (s.spread[i] + s.eps);
      map.offset[i] = -s.center[i] * map.scale[i];
    } else {
      const double range = s.spread[i] - s.center[i];
      map.scale[i] = 2 / (s.adds_eps ? range + s.eps : range == 0 ? s.eps : range);
      map.offset[i] = -s.center[i] * map.scale[i] - 1;
    }
  }
  return map;
}

Affine unnormalization(const Statistics& s, int size) {
  Affine map{std::vector<double>(size, 1), std::vector<double>(size, 0)};
  for (std::size_t i = 0; i < s.center.size(); ++i) {
    if (s.mode == "MEAN_STD") {
      map.scale[i] = s.spread[i];
      map.offset[i] = s.center[i];
    } else {
      const double range = s.spread[i] - s.center[i];
      map.scale[i] = (range == 0 && !s.adds_eps ? s.eps : range) / 2;
      map.offset[i] = map.scale[i] + s.center[i];
    }
  }
  return map;
}

std::optional<Statistics> buffer_statistics(const io::SafetensorsFile& model, const json& config,
                                            const std::string& module, const Feature& feature) {
  std::string mode = mode_of(config, feature);
  if (mode == "IDENTITY") return Statistics{};
  std::string buffer = fmt::format("{}.buffer_{}", module, feature.name);
  std::replace(buffer.begin() + static_cast<std::ptrdiff_t>(module.size()) + 1, buffer.end(), '.', '_');
  const std::string prefix = prefix_of(model, buffer + ".");
  if (prefix.empty()) return {};
  if (mode.empty()) mode = model.find(prefix + "mean") != nullptr ? "MEAN_STD" : "MIN_MAX";
  Statistics statistics = read_pair(model, prefix, mode, "config.json", feature);
  statistics.adds_eps = true;
  return statistics;
}

Pipeline::Pipeline(const std::filesystem::path& file, const std::string& step_name)
    : shown_(fmt::format("'{}'", file.string())), config_(json::object()) {
  const json pipeline = parse_object(io::read_text(file), shown_);
  const auto steps = pipeline.find("steps");
  if (steps == pipeline.end() || !steps->is_array()) throw Failure(fmt::format("{} has no list of steps", shown_));
  for (const json& step : *steps) {
    if (!step.is_object()) throw Failure(fmt::format("{}: a step is no JSON object", shown_));
    const std::string registered = text_of(step, "registry_name");
    const std::string name = one_line(registered.empty() ? text_of(step, "class") : registered, 100);
    const json config = step.value("config", json::object());
    if (std::ranges::find(kHarmless, name) != kHarmless.end()) continue;
    if (name != step_name) {
      const bool disabled = config.is_object() && config.contains("enabled") && config["enabled"] == false;
      if (!disabled) other_steps_.push_back(name.empty() ? "without a name" : name);
      continue;
    }
    if (has_step_) throw Failure(fmt::format("{} has two steps {}: one is supported", shown_, step_name));
    has_step_ = true;
    if (!config.is_object()) throw Failure(fmt::format("{}: the config of {} is no JSON object", shown_, step_name));
    config_ = config;
    const std::string state = text_of(step, "state_file");
    if (state.empty()) continue;
    if (std::filesystem::path(state).filename() != state) {
      throw Failure(fmt::format("{}: state_file '{}' is no file of its folder", shown_, one_line(state, 100)));
    }
    state_.emplace(file.parent_path() / state);
  }
}

std::optional<Statistics> Pipeline::statistics(const Feature& feature) const {
  if (!has_step_) return {};
  const auto object = [&](const char* key) { return config_.value(key, json::object()); };
  const json features = object("features"), map = object("norm_map");
  const json keys = config_.value("normalize_observation_keys", json());
  if (!features.is_object() || !map.is_object()) {
    throw Failure(fmt::format("{}: features and norm_map are JSON objects", shown_));
  }
  const bool is_action = feature.type == "ACTION";  // which LeRobot maps even if `features` lacks it
  const bool is_mapped = keys.is_array() ? std::ranges::find(keys, json(feature.name)) != keys.end() : true;
  const std::string mode = text_of(map, feature.type.c_str());
  if (mode.empty() || mode == "IDENTITY") return Statistics{};
  if (!is_action && (!is_mapped || !features.contains(feature.name))) return Statistics{};
  const std::string prefix = feature.name + ".";
  const auto has_prefix = [&](const io::StoredTensor& tensor) { return tensor.name.starts_with(prefix); };
  if (!state_ || !std::ranges::any_of(state_->tensors(), has_prefix)) return {};
  Statistics statistics = read_pair(*state_, prefix, mode, shown_, feature);
  if (const auto eps = config_.find("eps"); eps != config_.end()) {
    if (!eps->is_number() || !std::isfinite(eps->get<double>()) || eps->get<double>() < 0) {
      throw Failure(fmt::format("{}: eps is a number of at least 0", shown_));
    }
    statistics.eps = eps->get<double>();
  }
  return statistics;
}

}  // namespace ladder::denoise

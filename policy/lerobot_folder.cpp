#include "policy/lerobot_folder.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/json_fields.h"
#include "dev/diffusion/scheduler.h"
#include "io/text_file.h"
#include "policy/lerobot_statistics.h"

namespace ladder::denoise {
namespace {

using nlohmann::json;

constexpr int kMostExtent = 1 << 24;  // limit of sizes, larger than any network's

// The settings of config.json that an answer depends on. save_pretrained writes all of them; LeRobot's defaults differ
// from version to version, so that a missing setting is an error.
struct Config {
  int groups = 0, horizon = 0, n_obs_steps = 0, n_action_steps = 0;
  std::vector<int> down_dims;
  int kernel_size = 0, diffusion_step_embed_dim = 0;
  bool use_film_scale_modulation = true;
  std::vector<Feature> inputs;
  Feature action;
  json scheduler;  // in diffusers' fields
  std::optional<int> steps;
};

// A feature's type for a configuration of 2024, which has names and shapes alone.
const char* type_of(const std::string& name) {
  if (name == "action") return "ACTION";
  if (name.starts_with("observation.image")) return "VISUAL";
  return name == "observation.environment_state" ? "ENV" : "STATE";
}

class FolderReader {
 public:
  FolderReader(const std::filesystem::path& folder, const Given& given)
      : folder_(folder), given_(given), shown_(fmt::format("'{}'", (folder / "config.json").string())) {}

  PolicyFile read() {
    for (const char* name : {"config.json", "model.safetensors"}) {
      if (std::filesystem::is_regular_file(folder_ / name)) continue;
      const auto inside = folder_ / "pretrained_model";
      throw Failure(
          fmt::format("'{}' has no {}, as a folder of LeRobot's save_pretrained has{}", folder_.string(), name,
                      std::filesystem::is_regular_file(inside / name) ? fmt::format(": '{}' is one", inside.string())
                                                                      : std::string()));
    }
    json_ = parse_object(io::read_text(folder_ / "config.json"), shown_);
    try {
      config_ = config();
    } catch (const UsageError& error) {
      throw Failure(error.what());
    }
    PolicyFile policy = network();
    compare(policy.network);
    policy.scheduler = config_.scheduler;
    policy.steps = config_.steps;
    policy.window = window(policy.network.horizon);
    const io::SafetensorsFile model(folder_ / "model.safetensors");
    unnormalize_actions(model, policy);
    normalize_observations(model, policy);
    return policy;
  }

 private:
  [[noreturn]] void fail(const std::string& says) const { throw Failure(fmt::format("{}: {}", shown_, says)); }

  Config config() const {
    const JsonFields fields(json_, shown_ + ":", JsonFields::Missing::is_wrong);
    if (json_.contains("type")) {
      bool is_diffusion = false;
      fields.read("type", is_diffusion, {{"diffusion", true}});
    }
    Config c;
    if (!given_.groups) fields.read("n_groups", c.groups, 1, kMostExtent);
    if (!given_.horizon) fields.read("horizon", c.horizon, 1, kMostExtent);
    fields.read("n_obs_steps", c.n_obs_steps, 1, kMostExtent);
    fields.read("n_action_steps", c.n_action_steps, 1, kMostExtent);
    fields.read("down_dims", c.down_dims, 64, 1, kMostExtent);
    fields.read("kernel_size", c.kernel_size, 1, kMostExtent);
    fields.read("diffusion_step_embed_dim", c.diffusion_step_embed_dim, 1, kMostExtent);
    fields.read("use_film_scale_modulation", c.use_film_scale_modulation);
    read_features(c);
    read_scheduler(fields, c);
    return c;
  }

  void read_scheduler(const JsonFields& fields, Config& c) const {
    std::string kind;
    fields.read<std::string>("noise_scheduler_type", kind, {{"DDPM", "DDPMScheduler"}, {"DDIM", "DDIMScheduler"}});
    c.scheduler = {{"_class_name", kind}};
    for (const char* key : {"num_train_timesteps", "beta_schedule", "beta_start", "beta_end", "prediction_type",
                            "clip_sample", "clip_sample_range"}) {
      if (!json_.contains(key)) fail(fmt::format("{} is missing", key));
      c.scheduler[key] = json_[key];
    }
    int trained = 0;
    try {
      trained = diffusion::SchedulerConfig::from_json(c.scheduler.dump()).num_train_timesteps;
    } catch (const UsageError& error) {
      fail(error.what());
    }
    if (json_.contains("num_inference_steps") && !json_["num_inference_steps"].is_null()) {
      int steps = 0;
      fields.read("num_inference_steps", steps, 1, trained);
      c.steps = steps;
    }
  }

  // Features have types in configurations since 2025, and shapes alone before.
  void read_features(Config& c) const {
    const bool has_types = json_.contains("input_features") || !json_.contains("input_shapes");
    const char* const inputs = has_types ? "input_features" : "input_shapes";
    const char* const outputs = has_types ? "output_features" : "output_shapes";
    for (const char* key : {inputs, outputs}) {
      if (!json_.contains(key)) fail(fmt::format("{} is missing", key));
      if (!json_[key].is_object()) fail(fmt::format("{} is no JSON object", key));
    }
    for (const auto& [name, value] : json_[inputs].items())
      c.inputs.push_back(feature_of(inputs, name, value, has_types));
    if (json_[outputs].contains("action"))
      c.action = feature_of(outputs, "action", json_[outputs]["action"], has_types);
    if (c.action.type != "ACTION") fail(fmt::format("{} has no 'action' of type ACTION", outputs));
  }

  Feature feature_of(const char* key, const std::string& name, const json& value, bool has_types) const {
    const json wrapped = has_types ? value : json{{"type", type_of(name)}, {"shape", value}};
    Feature feature{.name = name, .type = {}, .size = 1};
    std::vector<int> shape;
    const JsonFields fields(wrapped, fmt::format("{}: {} '{}':", shown_, key, one_line(name, 60)),
                            JsonFields::Missing::is_wrong);
    fields.read("type", feature.type);
    fields.read("shape", shape, 4, 1, 1 << 20);
    if (feature.type == "VISUAL") return feature;
    if (shape.size() != 1) fail(fmt::format("{} '{}' has {} dimensions, 1 is right", key, name, shape.size()));
    feature.size = shape[0];
    return feature;
  }

  PolicyFile network() const {
    const Given settings{.groups = given_.groups.value_or(config_.groups),
                         .horizon = given_.horizon.value_or(config_.horizon)};
    try {
      return read_policy_file(folder_ / "model.safetensors", settings);
    } catch (const UsageError& error) {
      if (given_.groups || given_.horizon) throw;
      fail(error.what());
    }
  }

  // Compares the settings that the tensors' shapes determine too.
  void compare(const nn::Unet1dConfig& network) const {
    const auto same = [&](const std::string& key, const std::string& set, const std::string& found) {
      if (set != found) fail(fmt::format("{} {}, but the tensors of model.safetensors have {}", key, set, found));
    };
    const auto list = [](const std::vector<int>& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); };
    same("down_dims", list(config_.down_dims), list(network.dims));
    same("kernel_size", fmt::to_string(config_.kernel_size), fmt::to_string(network.taps));
    same("diffusion_step_embed_dim", fmt::to_string(config_.diffusion_step_embed_dim),
         fmt::to_string(network.step_channels));
    same("use_film_scale_modulation", fmt::to_string(config_.use_film_scale_modulation), fmt::to_string(network.scale));
    same("the action's numbers,", fmt::to_string(config_.action.size), fmt::to_string(network.action_dim));
    if (network.observation % config_.n_obs_steps != 0) {
      fail(fmt::format("n_obs_steps {}, but the network's observation in model.safetensors has {} numbers",
                       config_.n_obs_steps, network.observation));
    }
    const int per_step = network.observation / config_.n_obs_steps;
    if (has_pictures() ? per_step > num_inputs() : per_step == num_inputs()) return;
    fail(fmt::format("input_features have {} numbers{}, but the tensors of model.safetensors take {} of a time step",
                     num_inputs(), has_pictures() ? " besides pictures" : "", per_step));
  }

  bool has_pictures() const {
    return std::ranges::any_of(config_.inputs, [](const Feature& input) { return input.type == "VISUAL"; });
  }

  // The inputs that LeRobot concatenates unencoded, in its order: the robot's state, the environment's.
  std::vector<Feature> plain_inputs() const {
    std::vector<Feature> plain;
    const auto add_first = [&](const auto& is_wanted) {
      const auto found = std::ranges::find_if(config_.inputs, is_wanted);
      if (found != config_.inputs.end()) plain.push_back(*found);
    };
    add_first([](const Feature& f) { return f.type == "STATE" && f.name == "observation.state"; });
    add_first([](const Feature& f) { return f.type == "ENV"; });
    return plain;
  }

  int num_inputs() const {
    int sum = 0;
    for (const Feature& input : plain_inputs()) sum += input.size;
    return sum;
  }

  // LeRobot executes actions[n_obs_steps - 1 : n_obs_steps - 1 + n_action_steps]: action 0 belongs to the first
  // observation, which is n_obs_steps - 1 time steps old. Python's slice ends with the horizon.
  ActionWindow window(int horizon) const {
    const int first = config_.n_obs_steps - 1;
    if (first >= horizon) {
      fail(fmt::format("n_obs_steps {} leaves no action of horizon {}", config_.n_obs_steps, horizon));
    }
    return {first, std::min(config_.n_action_steps, horizon - first)};
  }

  void unnormalize_actions(const io::SafetensorsFile& model, PolicyFile& policy) const {
    const auto file = folder_ / "policy_postprocessor.json";
    const bool has_pipeline = std::filesystem::exists(file);
    std::optional<Statistics> found;
    if (has_pipeline) {
      const Pipeline pipeline(file, "unnormalizer_processor");
      if (!pipeline.other_steps().empty()) {
        throw Failure(fmt::format(
            "'{}': step '{}' is not supported; there are: unnormalizer_processor, device_processor, and any step whose "
            "enabled is false",
            file.string(), pipeline.other_steps().front()));
      }
      found = pipeline.statistics(config_.action);
    } else {
      found = buffer_statistics(model, json_, "unnormalize_outputs", config_.action);
    }
    policy.units.clear();
    if (!found) {
      policy.units = fmt::format("actions are in the network's units, as a rule normalised: {}",
                                 has_pipeline ? "policy_postprocessor.json has no statistics of them"
                                              : "the folder has neither policy_postprocessor.json nor "
                                                "unnormalize_outputs in model.safetensors");
      return;
    }
    policy.action = unnormalization(*found, config_.action.size);
    policy.notes.push_back(fmt::format("actions in the robot's units: {}, from {}", found->mode,
                                       has_pipeline ? "policy_postprocessor.json" : "unnormalize_outputs"));
  }

  void normalize_observations(const io::SafetensorsFile& model, PolicyFile& policy) const {
    std::vector<std::string> parts;
    for (const Feature& input : plain_inputs()) parts.push_back(fmt::format("{} [{}]", input.name, input.size));
    if (has_pictures()) {
      const int features = policy.network.observation / config_.n_obs_steps - num_inputs();
      parts.insert(parts.begin() + std::min<std::ptrdiff_t>(1, std::ssize(parts)),
                   fmt::format("pictures' features [{}]", features));
    }
    const std::string layout =
        fmt::format("an observation is {} time steps of {}", config_.n_obs_steps, fmt::join(parts, ", "));
    if (has_pictures()) {
      policy.notes.push_back(layout + ", normalised and encoded by the caller: none of it is normalised here");
      return;
    }
    const auto file = folder_ / "policy_preprocessor.json";
    std::optional<Pipeline> pipeline;
    if (std::filesystem::exists(file)) pipeline.emplace(file, "normalizer_processor");
    if (pipeline && !pipeline->other_steps().empty()) {
      policy.notes.push_back(fmt::format("{}, normalised by the caller: policy_preprocessor.json has the step '{}'",
                                         layout, pipeline->other_steps().front()));
      return;
    }
    Affine all;
    std::vector<std::string> modes;
    for (const Feature& input : plain_inputs()) {
      const std::optional<Statistics> found =
          pipeline ? pipeline->statistics(input) : buffer_statistics(model, json_, "normalize_inputs", input);
      if (found) modes.push_back(fmt::format("{} of {}", found->mode, input.name));
      const Affine map = normalization(found.value_or(Statistics{}), input.size);
      all.scale.insert(all.scale.end(), map.scale.begin(), map.scale.end());
      all.offset.insert(all.offset.end(), map.offset.begin(), map.offset.end());
    }
    if (modes.empty()) {
      policy.notes.push_back(layout + ", as given: the folder has no statistics of it");
      return;
    }
    policy.observation = all;
    policy.notes.push_back(fmt::format("{}, in the robot's units: {}, from {}", layout, fmt::join(modes, ", "),
                                       pipeline ? "policy_preprocessor.json" : "normalize_inputs"));
  }

  std::filesystem::path folder_;
  Given given_;
  std::string shown_;
  json json_;
  Config config_;
};

}  // namespace

PolicyFile read_lerobot_folder(const std::filesystem::path& folder, const Given& given) {
  return FolderReader(folder, given).read();
}

}  // namespace ladder::denoise

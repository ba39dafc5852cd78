#include "policy/policy_file.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/json_fields.h"
#include "io/expected_tensors.h"
#include "io/safetensors.h"
#include "policy/lerobot_folder.h"
#include "policy/policy_names.h"

namespace ladder::denoise {
namespace {

using nlohmann::json;

constexpr const char* kExport = "python3 -m ladder_torch.export policy.ckpt policy.safetensors";
constexpr std::string_view kNormalizer = "normalizer.params_dict.";
constexpr int kMostExtent = 1 << 24;  // limit of a tensor's extents, larger than any network's

io::SafetensorsFile opened(const std::filesystem::path& path) {
  try {
    return io::SafetensorsFile(path);
  } catch (const io::PickledFile&) {
    throw Failure(fmt::format("'{}' is a pickle, as torch.save writes checkpoints: {}", path.string(), kExport));
  }
}

// Reader of a policy's file; error messages name the file.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path)
      : file_(opened(path)), shown_(fmt::format("'{}'", path.string())), names_(names_of(file_)) {}

  PolicyFile read(const Given& given) {
    PolicyFile policy;
    const json metadata = ladder_metadata();
    policy.network = sizes();
    policy.network.groups = number("groups", given.groups, metadata, policy.network.groups, policy.notes);
    policy.network.horizon = number("horizon", given.horizon, metadata, policy.network.horizon, policy.notes);
    if (metadata.contains("scheduler")) policy.scheduler = metadata["scheduler"];
    if (metadata.contains("steps")) policy.steps = whole_number("steps", metadata);
    policy.network.check();
    check_tensors(policy.network);
    for (const nn::PublishedTensor& tensor : nn::published_tensors(policy.network)) {
      policy.weights[tensor.name] = finite(names_.in_file(tensor.name));
    }
    policy.observation = normalizer("obs", policy.network.observation, false);
    policy.action = inverse(normalizer("action", policy.network.action_dim, true));
    if (policy.action.scale.empty()) policy.units = units(policy.observation);
    note_others(policy.notes);
    return policy;
  }

 private:
  [[noreturn]] void fail(const std::string& says) const { throw Failure(fmt::format("{}: {}", shown_, says)); }

  json ladder_metadata() const {
    const auto found = file_.metadata().find(kMetadataKey);
    if (found == file_.metadata().end()) return json::object();
    const std::string what = fmt::format("{}: its metadata's {}", shown_, kMetadataKey);
    json metadata = parse_object(found->second, what);
    if (metadata.contains("scheduler") && !metadata["scheduler"].is_object()) fail("its scheduler is no JSON object");
    return metadata;
  }

  int number(const char* key, const std::optional<int>& given, const json& metadata, int otherwise,
             std::vector<std::string>& notes) const {
    if (given) return *given;
    if (metadata.contains(key)) return whole_number(key, metadata);
    notes.push_back(fmt::format("{} {}: the default, as the file does not say", key, otherwise));
    return otherwise;
  }

  int whole_number(const char* key, const json& metadata) const {
    int value = 0;
    try {
      JsonFields(metadata, "its").read(key, value, 1, kMostExtent);
    } catch (const UsageError& error) {
      fail(error.what());
    }
    return value;
  }

  // Returns the shape of a tensor, given its published name; fails unless it has `rank` dimensions.
  std::vector<int> extents(const std::string& published, std::size_t rank) const {
    const std::string name = names_.in_file(published);
    const io::StoredTensor* const tensor = file_.find(name);
    if (tensor == nullptr) fail(fmt::format("tensor '{}' is missing", name));
    const bool sized = std::ranges::all_of(tensor->shape, [](std::int64_t e) { return e > 0 && e <= kMostExtent; });
    if (tensor->shape.size() != rank || !sized) {
      fail(fmt::format("tensor '{}' has shape {}, which has to have {} dimensions above 0", name,
                       io::to_string(tensor->shape), rank));
    }
    return {tensor->shape.begin(), tensor->shape.end()};
  }

  nn::Unet1dConfig sizes() const {
    const std::string local = names_.in_file("local_cond_encoder.");
    for (const io::StoredTensor& tensor : file_.tensors()) {
      if (tensor.name.starts_with(local)) {
        fail(fmt::format("it has '{}': local conditioning is not supported", tensor.name));
      }
    }
    const auto conv = [](std::size_t level) { return fmt::format("down_modules.{}.0.blocks.0.block.0.weight", level); };
    nn::Unet1dConfig config;
    const std::vector<int> first = extents(conv(0), 3);
    config.action_dim = first[1];
    config.taps = first[2];
    config.dims = {first[0]};
    while (file_.find(names_.in_file(conv(config.dims.size()))) != nullptr) {
      config.dims.push_back(extents(conv(config.dims.size()), 3)[0]);
    }
    config.step_channels = extents("diffusion_step_encoder.1.weight", 2)[1];
    const std::string encoder = "down_modules.0.0.cond_encoder.1.weight";
    const std::vector<int> condition = extents(encoder, 2);
    config.scale = condition[0] == 2 * first[0];
    config.observation = condition[1] - config.step_channels;
    if (!config.scale && condition[0] != first[0]) {
      fail(fmt::format("tensor '{}' has shape [{}]: {} rows for scales and shifts, or {} for shifts",
                       names_.in_file(encoder), fmt::join(condition, ", "), 2 * first[0], first[0]));
    }
    if (config.observation < 1) {
      fail(
          fmt::format("tensor '{}' has shape [{}]: more than {} columns, those of the time step, are the observation's",
                      names_.in_file(encoder), fmt::join(condition, ", "), config.step_channels));
    }
    return config;
  }

  void check_tensors(const nn::Unet1dConfig& config) const {
    std::vector<io::ExpectedTensor> expected, found;
    for (const nn::PublishedTensor& tensor : nn::published_tensors(config)) {
      expected.push_back({names_.in_file(tensor.name), tensor.shape});
    }
    for (io::ExpectedTensor& tensor : io::tensors_of(file_)) {
      if (names_.of_network(tensor.name)) found.push_back(std::move(tensor));
    }
    io::expect_tensors(shown_, found, expected);
  }

  std::vector<float> finite(const std::string& name) const {
    std::vector<float> values = file_.floats(name);
    if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
      fail(fmt::format("tensor '{}' has a number that is not finite", name));
    }
    return values;
  }

  static Affine inverse(Affine map) {
    for (std::size_t i = 0; i < map.scale.size(); ++i) {
      map.scale[i] = 1 / map.scale[i];
      map.offset[i] *= -map.scale[i];
    }
    return map;
  }

  // Returns normalised = scale * value + offset.
  // `exact`: the normalizer must have all `numbers` elements. Otherwise a divisor of `numbers` is allowed: `numbers`
  // then covers several observation steps that share the normalizer.
  Affine normalizer(const char* field, int numbers, bool exact) const {
    const std::string name = fmt::format("{}{}", kNormalizer, field);
    const bool has_scale = file_.find(name + ".scale") != nullptr, has_offset = file_.find(name + ".offset") != nullptr;
    if (!has_scale && !has_offset) return {};
    if (!has_scale || !has_offset) fail(fmt::format("tensor '{}.{}' is missing", name, has_scale ? "offset" : "scale"));
    const std::vector<float> scale = finite(name + ".scale"), offset = finite(name + ".offset");
    const Affine made{.scale = {scale.begin(), scale.end()}, .offset = {offset.begin(), offset.end()}};
    const auto size = static_cast<int>(made.scale.size());
    if (size == 0 || made.offset.size() != made.scale.size() || numbers % size != 0 || (exact && size != numbers)) {
      fail(fmt::format("tensors '{}.scale' and '.offset' have {} and {} numbers, for {}{}", name, size,
                       made.offset.size(), numbers, exact ? "" : " or a divisor of that"));
    }
    if (std::ranges::any_of(made.scale, [](double value) { return value == 0; })) {
      fail(fmt::format("tensor '{}.scale' has a zero", name));
    }
    return made;
  }

  // Returns a note on the units of actions, with the names of normalizers that are not applied (LeRobot's:
  // normalize_inputs and unnormalize_outputs).
  std::string units(const Affine& observation) const {
    std::set<std::string> found;
    for (const io::StoredTensor& tensor : file_.tensors()) {
      const std::size_t position = tensor.name.find("normaliz");
      if (position == tensor.name.npos) continue;
      const std::size_t begin = tensor.name.rfind('.', position) + 1;  // 0 without a dot before it
      found.insert(tensor.name.substr(begin, tensor.name.find('.', position) - begin));
    }
    const bool in_folder = std::filesystem::is_regular_file(file_.path().parent_path() / "config.json");
    return fmt::format(
        "{} in the network's units, as a rule normalised: {}{}",
        observation.scale.empty() ? "observations and actions are" : "actions are",
        found.empty() ? "the file has no normalizer" : fmt::format("not applied: {}", fmt::join(found, ", ")),
        in_folder ? "; if LeRobot wrote the config.json beside it, name the folder" : "");
  }

  void note_others(std::vector<std::string>& notes) const {
    std::map<std::string, int> others;
    for (const io::StoredTensor& tensor : file_.tensors()) {
      if (names_.of_network(tensor.name) || tensor.name.find("normaliz") != std::string::npos) continue;
      ++others[tensor.name.substr(0, tensor.name.find('.'))];
    }
    std::vector<std::string> counted;
    counted.reserve(others.size());
    for (const auto& [part, count] : others) counted.push_back(fmt::format("{} of {}", count, part));
    if (!counted.empty())
      notes.push_back(one_line(fmt::format("left alone: tensors, {}", fmt::join(counted, ", ")), 400));
  }

  io::SafetensorsFile file_;
  std::string shown_;
  Names names_;
};

}  // namespace

json parse_object(const std::string& text, const std::string& what) {
  try {
    return ladder::parse_object(text, what);
  } catch (const UsageError& error) {
    throw Failure(error.what());
  }
}

PolicyFile tiny_policy() {
  PolicyFile file;
  file.network = nn::tiny_unet1d();
  file.weights = nn::made_up_weights(file.network);
  file.scheduler = {{"_class_name", "DDPMScheduler"},
                    {"num_train_timesteps", 10},
                    {"beta_schedule", "squaredcos_cap_v2"},
                    {"prediction_type", "epsilon"},
                    {"clip_sample", true}};
  return file;
}

PolicyFile read_policy_file(const std::filesystem::path& path, const Given& given) { return Reader(path).read(given); }

PolicyFile read_policy(const std::filesystem::path& path, const Given& given) {
  std::error_code missing;
  return std::filesystem::is_directory(path, missing) ? read_lerobot_folder(path, given)
                                                      : read_policy_file(path, given);
}

}  // namespace ladder::denoise

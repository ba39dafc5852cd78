// A folder as LeRobot's save_pretrained writes it, for tests.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "io/safetensors.h"
#include "policy/policy_file.h"
#include "tests/denoise/tensors.h"
#include "tests/files.h"

namespace ladder::denoise::test {

using ladder::test::has;
using ladder::test::message_of;
using ladder::test::put;
using ladder::test::Scratch;
using nlohmann::json;

// A policy with an action of 2 numbers, whose observation is 2 time steps of a state [2] and an environment's state [1].
class LeRobotFolders : public testing::Test {
 protected:
  LeRobotFolders() {
    std::filesystem::create_directory(folder_);
    model_ = made_up_tensors(network_, {.prefix = "diffusion.unet.", .lerobot = true});
  }

  static json feature(const char* type, std::vector<int> shape) { return {{"type", type}, {"shape", shape}}; }

  static json config() {
    return {{"type", "diffusion"},
            {"n_obs_steps", 2},
            {"horizon", 16},
            {"n_action_steps", 8},
            {"normalization_mapping",
             {{"VISUAL", "MEAN_STD"}, {"STATE", "MIN_MAX"}, {"ENV", "MEAN_STD"}, {"ACTION", "MIN_MAX"}}},
            {"input_features",
             {{"observation.state", feature("STATE", {2})}, {"observation.environment_state", feature("ENV", {1})}}},
            {"output_features", {{"action", feature("ACTION", {2})}}},
            {"down_dims", {8, 16}},
            {"kernel_size", 5},
            {"n_groups", 4},
            {"diffusion_step_embed_dim", 8},
            {"use_film_scale_modulation", true},
            {"noise_scheduler_type", "DDIM"},
            {"num_train_timesteps", 50},
            {"beta_schedule", "linear"},
            {"beta_start", 0.001},
            {"beta_end", 0.01},
            {"prediction_type", "sample"},
            {"clip_sample", true},
            {"clip_sample_range", 2.0},
            {"num_inference_steps", 10},
            {"vision_backbone", "resnet18"}};
  }

  void write(const std::string& name, const Tensors& tensors) const { write_tensors(folder_ / name, tensors); }

  void write(const json& config) const {
    write("model.safetensors", model_);
    put(folder_ / "config.json", config.dump(4));
  }

  // Statistics as buffers in model.safetensors, after `prefix`.
  void add_buffers(const std::string& prefix = "") {
    model_[prefix + "unnormalize_outputs.buffer_action.min"] = {{2}, {-3, 5}};
    model_[prefix + "unnormalize_outputs.buffer_action.max"] = {{2}, {1, 5}};
    model_[prefix + "normalize_targets.buffer_action.min"] = {{2}, {-3, 5}};
    model_[prefix + "normalize_inputs.buffer_observation_state.min"] = {{2}, {0, 100}};
    model_[prefix + "normalize_inputs.buffer_observation_state.max"] = {{2}, {512, 101}};
    model_[prefix + "normalize_inputs.buffer_observation_environment_state.mean"] = {{1}, {40}};
    model_[prefix + "normalize_inputs.buffer_observation_environment_state.std"] = {{1}, {2}};
  }

  // Statistics as steps of two pipelines.
  void write_pipelines(const json& norm_map, const json& extra_step = nullptr) const {
    const Tensors state = {{"action.min", {{2}, {-3, 5}}},
                           {"action.max", {{2}, {1, 5}}},
                           {"action.mean", {{2}, {0.5f, 7}}},
                           {"action.std", {{2}, {2, 0.25f}}},
                           {"action.q01", {{2}, {-2, 1}}},
                           {"action.q99", {{2}, {2, 3}}},
                           {"action.count", {{1}, {9}}},
                           {"observation.state.min", {{2}, {0, 100}}},
                           {"observation.state.max", {{2}, {512, 100}}},
                           {"observation.environment_state.mean", {{1}, {40}}},
                           {"observation.environment_state.std", {{1}, {2}}}};
    const json device = {{"registry_name", "device_processor"},
                         {"config", {{"device", "cpu"}, {"float_dtype", nullptr}}}};
    const auto step = [&](const char* name, const std::string& file, const json& features) {
      write(file, state);
      return json{{"registry_name", name},
                  {"config", {{"eps", 1e-8}, {"features", features}, {"norm_map", norm_map}}},
                  {"state_file", file}};
    };
    json inputs = config()["input_features"];
    inputs.update(config()["output_features"]);
    json before = {{"registry_name", "rename_observations_processor"}, {"config", {{"rename_map", json::object()}}}};
    const json normalizer =
        step("normalizer_processor", "policy_preprocessor_step_3_normalizer_processor.safetensors", inputs);
    json after =
        json::array({step("unnormalizer_processor", "policy_postprocessor_step_0_unnormalizer_processor.safetensors",
                          config()["output_features"]),
                     device});
    if (!extra_step.is_null()) after.push_back(extra_step);
    const json to_batch = {{"registry_name", "to_batch_processor"}, {"config", json::object()}};
    put(folder_ / "policy_preprocessor.json",
        json{{"name", "policy_preprocessor"}, {"steps", {before, to_batch, device, normalizer}}}.dump(2));
    put(folder_ / "policy_postprocessor.json", json{{"name", "policy_postprocessor"}, {"steps", after}}.dump(2));
  }

  PolicyFile read(const Given& given = {}) const { return read_policy(folder_, given); }

  void expect_refused(const std::string& says) const {
    const std::string message = message_of<Failure>([&] { read(); });
    EXPECT_TRUE(has(message, says));
    EXPECT_TRUE(has(message, "/policy"));
  }

  // Every error of a changed config.json.
  void expect_refused(const char* key, const json& value, const std::string& says) const {
    json changed = config();
    if (value.is_discarded()) {
      changed.erase(key);
    } else {
      changed[key] = value;
    }
    write(changed);
    expect_refused(says);
  }

  Scratch scratch_;
  std::filesystem::path folder_ = scratch_ / "policy";
  nn::Unet1dConfig network_ = {.horizon = 16, .dims = {8, 16}, .step_channels = 8, .observation = 6, .groups = 4};
  Tensors model_;
};

}  // namespace ladder::denoise::test

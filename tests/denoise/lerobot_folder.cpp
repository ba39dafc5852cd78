// Folders of LeRobot's save_pretrained: settings of config.json, and errors in one line.
#include <gtest/gtest.h>

#include <string>

#include "tests/denoise/lerobot.h"

namespace ladder::denoise::test {
namespace {

TEST_F(LeRobotFolders, TheSettingsAreThoseOfTheConfig) {
  write(config());
  const PolicyFile policy = read();
  EXPECT_EQ(policy.network, network_);
  EXPECT_EQ(policy.weights, nn::made_up_weights(network_));
  EXPECT_EQ(policy.scheduler, (json{{"_class_name", "DDIMScheduler"},
                                    {"num_train_timesteps", 50},
                                    {"beta_schedule", "linear"},
                                    {"beta_start", 0.001},
                                    {"beta_end", 0.01},
                                    {"prediction_type", "sample"},
                                    {"clip_sample", true},
                                    {"clip_sample_range", 2.0}}));
  EXPECT_EQ(policy.steps, 10);
  const PolicyFile given = read({.groups = 2, .horizon = 8});
  EXPECT_EQ(given.network.groups, 2);
  EXPECT_EQ(given.network.horizon, 8);
  json all_steps = config();
  all_steps["num_inference_steps"] = nullptr;
  write(all_steps);
  EXPECT_EQ(read().steps, std::nullopt);
}

TEST_F(LeRobotFolders, EveryPrefixOfTheNetwork) {
  const Tensors bare = model_;
  for (const char* prefix : {"_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module."}) {
    model_.clear();
    for (const auto& [name, tensor] : bare) model_[prefix + name] = tensor;
    add_buffers(prefix);
    write(config());
    EXPECT_EQ(read().weights, nn::made_up_weights(network_)) << prefix;
    EXPECT_EQ(read().action.scale, (std::vector<double>{2, 0})) << prefix;
  }
  model_.clear();
  for (const auto& [name, tensor] : bare) {  // of a compiled network
    model_["diffusion.unet._orig_mod." + name.substr(std::string("diffusion.unet.").size())] = tensor;
  }
  write(config());
  EXPECT_EQ(read().weights, nn::made_up_weights(network_));
}

// LeRobot: start = n_obs_steps - 1, end = start + n_action_steps, a Python slice of the horizon.
TEST_F(LeRobotFolders, TheActionsToExecute) {
  const auto window = [&](int n_obs_steps, int n_action_steps) {
    json changed = config();
    changed["n_obs_steps"] = n_obs_steps;
    changed["n_action_steps"] = n_action_steps;
    changed["input_features"] = {{"observation.state", feature("STATE", {6 / n_obs_steps})}};
    write(changed);
    return read().window.value();
  };
  EXPECT_EQ(window(1, 8).first, 0);
  EXPECT_EQ(window(2, 8).first, 1);
  EXPECT_EQ(window(2, 8).count, 8);
  EXPECT_EQ(window(3, 14).first, 2);
  EXPECT_EQ(window(3, 14).count, 14);
  EXPECT_EQ(window(3, 16).count, 14);
}

// config.json of 2024: shapes without types, modes of names in small letters.
// LeRobot concatenates observation.state and the environment's state; other states are no input of the network.
TEST_F(LeRobotFolders, OtherStatesAreNoInput) {
  add_buffers();
  json more = config();
  more["input_features"]["observation.velocity"] = feature("STATE", {7});
  write(more);
  EXPECT_EQ(read().observation.scale.size(), 3U);
}

TEST_F(LeRobotFolders, ItsModelAloneNamesTheFolder) {
  add_buffers();
  write(config());
  EXPECT_EQ(read_policy(folder_ / "model.safetensors", {}).units,
            "observations and actions are in the network's units, as a rule normalised: not applied: normalize_inputs, "
            "normalize_targets, unnormalize_outputs; if LeRobot wrote the config.json beside it, name the folder");
}

TEST_F(LeRobotFolders, WrongFoldersAreRefused) {
  expect_refused("has no config.json, as a folder of LeRobot's save_pretrained has");
  put(folder_ / "config.json", config().dump());
  expect_refused("has no model.safetensors");
  write("model.safetensors", {});
  expect_refused("has no network of a Diffusion Policy");
  write(config());
  for (const char* text : {"", "{", "[1]", "{\"horizon\": 16,}"}) {
    put(folder_ / "config.json", text);
    expect_refused("config.json' is no JSON object");
  }
  std::filesystem::rename(folder_, scratch_ / "pretrained_model");
  std::filesystem::create_directory(folder_);
  put(scratch_ / "pretrained_model/config.json", config().dump());
  std::filesystem::rename(scratch_ / "pretrained_model", folder_ / "pretrained_model");
  expect_refused("policy/pretrained_model' is one");
}

TEST_F(LeRobotFolders, WrongSettingsAreRefused) {
  const json missing = json::value_t::discarded, all = config();
  for (const auto& [key, value] : all.items()) {
    if (key == "type" || key == "vision_backbone" || key == "num_inference_steps") continue;
    if (key == "normalization_mapping") continue;
    expect_refused(key.c_str(), missing, key + " is missing");
  }
  expect_refused("type", "act", "type 'act' is not supported; there are: diffusion");
  expect_refused("noise_scheduler_type", "EULER",
                 "noise_scheduler_type 'EULER' is not supported; there are: DDPM, DDIM");
  expect_refused("prediction_type", "noise", "prediction_type 'noise' is not supported; there are: epsilon, sample");
  expect_refused("beta_schedule", "cubic", "beta_schedule 'cubic' is not supported");
  expect_refused("num_train_timesteps", 0, "num_train_timesteps 0 is not supported");
  expect_refused("num_inference_steps", 51, "num_inference_steps 51 is not supported: a whole number from 1 to 50");
  expect_refused("n_groups", "4", "n_groups \"4\" is not supported: a whole number");
  expect_refused("n_groups", 3, "groups 3: they divide the channels");
  expect_refused("horizon", 15, "horizon 15: 2 levels halve it");
  expect_refused("down_dims", {8, 32}, "down_dims [8, 32], but the tensors of model.safetensors have [8, 16]");
  expect_refused("down_dims", {8}, "down_dims [8], but");
  expect_refused("kernel_size", 3, "kernel_size 3, but the tensors of model.safetensors have 5");
  expect_refused("diffusion_step_embed_dim", 16, "diffusion_step_embed_dim 16, but the tensors");
  expect_refused("use_film_scale_modulation", false, "use_film_scale_modulation false, but");
  expect_refused("n_obs_steps", 4, "n_obs_steps 4, but the network's observation in model.safetensors has 6 numbers");
  expect_refused("n_obs_steps", 3, "input_features have 3 numbers, but the tensors of model.safetensors take 2");
  expect_refused("output_features", {{"action", feature("ACTION", {3})}}, "the action's numbers, 3, but");
  expect_refused("output_features", json::object(), "output_features has no 'action'");
  expect_refused("output_features", {{"action", {{"shape", {2}}}}}, "output_features 'action': type is missing");
  expect_refused("input_features", {{"observation.state", feature("STATE", {2, 2})}}, "has 2 dimensions, 1 is right");
  expect_refused("input_features", 3, "input_features is no JSON object");
}

}  // namespace
}  // namespace ladder::denoise::test

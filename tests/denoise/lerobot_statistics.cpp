// Normalisation of LeRobot's folders: both formats of statistics, against LeRobot's formulas.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <string>

#include <fmt/format.h>

#include "tests/denoise/lerobot.h"

namespace ladder::denoise::test {
namespace {

// LeRobot's formulas, in its own words and in fp32: Normalize and Unnormalize of lerobot/common/policies/normalize.py
// (buffers), _apply_transform of lerobot/processor/normalize_processor.py (pipeline).
namespace lerobot {

constexpr float kEps = 1e-8f;

float buffers(const std::string& mode, float x, float first, float second, bool inverse) {
  if (mode == "MEAN_STD") return inverse ? x * second + first : (x - first) / (second + kEps);
  return inverse ? (x + 1) / 2 * (second - first) + first : (x - first) / (second - first + kEps) * 2 - 1;
}

float pipeline(const std::string& mode, float x, float first, float second, bool inverse) {
  if (mode == "MEAN_STD") return inverse ? x * second + first : (x - first) / (second + kEps);
  const float denom = second - first == 0 ? kEps : second - first;
  return inverse ? (x + 1) / 2 * denom + first : 2 * (x - first) / denom - 1;
}

}  // namespace lerobot

void expect_map(const Affine& map, std::size_t i, const std::function<float(float)>& expected) {
  for (const float x : {-1.0f, -0.25f, 0.0f, 0.5f, 1.0f, 101.0f}) {
    const double found = map.scale.at(i) * x + map.offset.at(i);
    EXPECT_NEAR(found, expected(x), 4e-7 * (std::abs(map.scale[i] * x) + std::abs(map.offset[i]) + 1)) << i << " " << x;
  }
}

TEST_F(LeRobotFolders, BuffersAreApplied) {
  add_buffers();
  write(config());
  const PolicyFile policy = read();
  EXPECT_EQ(policy.units, "");
  const auto expect = [](const Affine& map, std::size_t i, const char* mode, float first, float second, bool inverse) {
    expect_map(map, i, [&](float x) { return lerobot::buffers(mode, x, first, second, inverse); });
  };
  ASSERT_EQ(policy.action.scale.size(), 2U);
  expect(policy.action, 0, "MIN_MAX", -3, 1, true);
  expect(policy.action, 1, "MIN_MAX", 5, 5, true);
  ASSERT_EQ(policy.observation.scale.size(), 3U);
  expect(policy.observation, 0, "MIN_MAX", 0, 512, false);
  expect(policy.observation, 1, "MIN_MAX", 100, 101, false);
  expect(policy.observation, 2, "MEAN_STD", 40, 2, false);
  EXPECT_EQ(policy.notes, (std::vector<std::string>{
                              "actions in the robot's units: MIN_MAX, from unnormalize_outputs",
                              "an observation is 2 time steps of observation.state [2], observation.environment_state "
                              "[1], in the robot's units: MIN_MAX of observation.state, MEAN_STD of "
                              "observation.environment_state, from normalize_inputs"}));
}

TEST_F(LeRobotFolders, AConfigOf2024) {
  add_buffers();
  json old = config();
  for (const char* key : {"type", "normalization_mapping", "input_features", "output_features"}) old.erase(key);
  old["input_shapes"] = {{"observation.state", {2}}, {"observation.environment_state", {1}}};
  old["output_shapes"] = {{"action", {2}}};
  old["input_normalization_modes"] = {{"observation.state", "min_max"}, {"observation.environment_state", "mean_std"}};
  old["output_normalization_modes"] = {{"action", "min_max"}};
  write(old);
  const PolicyFile policy = read();
  EXPECT_EQ(policy.action.scale, (std::vector<double>{2, 0}));
  EXPECT_EQ(policy.action.offset, (std::vector<double>{-1, 5}));
  EXPECT_EQ(policy.observation.scale.size(), 3U);
}

TEST_F(LeRobotFolders, PipelinesAreAppliedInEveryMode) {
  const std::map<std::string, std::array<float, 4>> statistics = {
      {"MIN_MAX", {-3, 1, 5, 5}}, {"MEAN_STD", {0.5f, 2, 7, 0.25f}}, {"QUANTILES", {-2, 2, 1, 3}}};
  add_buffers();  // which LeRobot ignores where there are pipelines
  write(config());
  for (const auto& [mode, s] : statistics) {
    write_pipelines({{"STATE", "MIN_MAX"}, {"ENV", "MEAN_STD"}, {"ACTION", mode}});
    const PolicyFile policy = read();
    EXPECT_EQ(policy.units, "");
    EXPECT_EQ(policy.notes.at(0),
              fmt::format("actions in the robot's units: {}, from policy_postprocessor.json", mode));
    for (const std::size_t i : {0, 1}) {
      expect_map(policy.action, i, [&](float x) { return lerobot::pipeline(mode, x, s[2 * i], s[2 * i + 1], true); });
    }
    expect_map(policy.observation, 0, [](float x) { return lerobot::pipeline("MIN_MAX", x, 0, 512, false); });
    expect_map(policy.observation, 1, [](float x) { return lerobot::pipeline("MIN_MAX", x, 100, 100, false); });
    expect_map(policy.observation, 2, [](float x) { return lerobot::pipeline("MEAN_STD", x, 40, 2, false); });
  }
  write_pipelines({{"STATE", "IDENTITY"}});
  EXPECT_EQ(read().action.scale, (std::vector<double>{1, 1}));
  EXPECT_EQ(read().observation.scale, (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(read().units, "");
}

TEST_F(LeRobotFolders, ActionsThatStayNormalisedAreSaidToBe) {
  write(config());
  EXPECT_EQ(read().units,
            "actions are in the network's units, as a rule normalised: the folder has neither "
            "policy_postprocessor.json nor unnormalize_outputs in model.safetensors");
  EXPECT_TRUE(read().action.scale.empty());
  EXPECT_TRUE(read().observation.scale.empty());
  EXPECT_TRUE(has(read().notes.at(0), "[1], as given: the folder has no statistics of it"));
  put(folder_ / "policy_postprocessor.json", R"({"steps": [{"registry_name": "device_processor"}]})");
  EXPECT_TRUE(has(read().units, "policy_postprocessor.json has no statistics of them"));
}

TEST_F(LeRobotFolders, ObservationsWithPicturesAreLeftAsGiven) {
  add_buffers();
  json pictures = config();
  pictures["input_features"] = {{"observation.state", feature("STATE", {2})},
                                {"observation.image", feature("VISUAL", {3, 96, 96})}};
  write(pictures);
  const PolicyFile policy = read();
  EXPECT_TRUE(policy.observation.scale.empty());
  EXPECT_EQ(
      policy.notes.back(),
      "an observation is 2 time steps of observation.state [2], pictures' features [1], normalised and encoded by "
      "the caller: none of it is normalised here");
}

TEST_F(LeRobotFolders, WrongStatisticsAreRefused) {
  const Tensors bare = model_;
  const std::string max = "unnormalize_outputs.buffer_action.max";
  add_buffers();
  model_.erase(max);
  write(config());
  expect_refused("tensor '" + max + "' is missing");
  model_[max] = {{3}, {1, 2, 3}};
  write(config());
  expect_refused("tensor '" + max + "' has shape [3] instead of [2]");
  model_[max] = {{2}, {1, INFINITY}};  // LeRobot's buffers before any statistics
  write(config());
  expect_refused("tensor '" + max + "' has a number that is not finite");
  model_ = bare;
  add_buffers();
  json changed = config();
  changed["normalization_mapping"]["ACTION"] = "LOG";
  write(changed);
  const std::string message = message_of<Failure>([&] { read(); });
  EXPECT_TRUE(has(message, "the normalisation of ACTION, 'LOG', is not supported; there are: IDENTITY, MEAN_STD"));

  write(config());
  const json map = {{"STATE", "MIN_MAX"}, {"ENV", "MEAN_STD"}, {"ACTION", "MIN_MAX"}};
  const auto absolute = [](bool enabled) {
    return json{{"registry_name", "absolute_actions_processor"}, {"config", {{"enabled", enabled}}}};
  };
  write_pipelines(map, absolute(false));
  EXPECT_EQ(read().units, "");
  write_pipelines(map, absolute(true));
  expect_refused("step 'absolute_actions_processor' is not supported; there are: unnormalizer_processor");
  write_pipelines({{"ACTION", "QUANTILE10"}});
  expect_refused("tensor 'action.q10' is missing");
  const auto post = folder_ / "policy_postprocessor.json";
  for (const auto& [text, says] : std::map<std::string, std::string>{
           {"{", "is no JSON object"},
           {"{}", "has no list of steps"},
           {R"({"steps": [3]})", "a step is no JSON object"},
           {R"({"steps": [{"registry_name": "unnormalizer_processor", "config": 3}]})", "is no JSON object"},
           {R"({"steps": [{"registry_name": "unnormalizer_processor", "state_file": "../a.safetensors"}]})",
            "is no file of its folder"},
           {R"({"steps": [{"registry_name": "unnormalizer_processor", "state_file": "a.safetensors"}]})",
            "cannot be read"}}) {
    put(post, text);
    expect_refused(says);
  }
}

}  // namespace
}  // namespace ladder::denoise::test

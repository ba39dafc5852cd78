// Policy files: both layouts of names come back, sizes are read from shapes, and what is wrong is said in one line.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "io/safetensors.h"
#include "policy/policy_file.h"
#include "policy/policy_names.h"
#include "policy/sampling_schedule.h"
#include "tests/denoise/tensors.h"
#include "tests/files.h"

namespace ladder::denoise {
namespace {

using ladder::test::contents;
using ladder::test::message_of;
using ladder::test::put;
using ladder::test::Scratch;
using nlohmann::json;
using test::made_up_tensors;
using test::Tensor;
using test::Tensors;
using test::write_tensors;

class PolicyFiles : public testing::Test {
 protected:
  void write(const Tensors& tensors, const io::Metadata& metadata = {}) const {
    write_tensors(file_, tensors, metadata);
  }

  PolicyFile read(const Given& given = {}) const { return read_policy(file_, given); }

  // Every error is a line that names the file.
  void expect_refused(const std::string& says, const Given& given = {}) const {
    const std::string message = message_of<Failure>([&] { read(given); });
    EXPECT_NE(message.find(says), message.npos) << message;
    EXPECT_NE(message.find("policy.safetensors'"), message.npos) << message;
    EXPECT_EQ(message.find('\n'), message.npos) << message;
  }

  static Tensor zeros(io::Shape shape) {
    std::size_t count = 1;
    for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
    return {std::move(shape), std::vector<float>(count)};
  }

  Scratch scratch_;
  std::filesystem::path file_ = scratch_ / "policy.safetensors";
  nn::Unet1dConfig small_ = {.horizon = 16, .dims = {8, 16}, .step_channels = 8, .observation = 6, .groups = 8};
};

TEST_F(PolicyFiles, BothLayoutsOfNamesComeBack) {
  for (const Names& names : {Names{}, Names{.prefix = "model."}, Names{.prefix = "diffusion.unet.", .lerobot = true},
                             Names{.prefix = "", .lerobot = true}, Names{.prefix = "diffusion.unet."},
                             Names{.prefix = "diffusion.unet._orig_mod.", .lerobot = true}, Names{.prefix = "module."},
                             Names{.prefix = "module.model._orig_mod."}, Names{.prefix = "unet."}}) {
    write(made_up_tensors(small_, names));
    const PolicyFile policy = read();
    EXPECT_EQ(policy.network, small_);
    EXPECT_EQ(policy.weights, nn::made_up_weights(small_));
  }
}

TEST_F(PolicyFiles, LeRobotsNames) {
  const Names names{.prefix = "diffusion.unet.", .lerobot = true};
  EXPECT_EQ(names.in_file("down_modules.0.0.blocks.0.block.0.weight"),
            "diffusion.unet.down_modules.0.0.conv1.block.0.weight");
  EXPECT_EQ(names.in_file("up_modules.1.1.blocks.1.block.1.bias"), "diffusion.unet.up_modules.1.1.conv2.block.1.bias");
  EXPECT_EQ(names.in_file("up_modules.0.2.conv.weight"), "diffusion.unet.up_modules.0.2.weight");
  EXPECT_EQ(names.in_file("final_conv.0.block.0.weight"), "diffusion.unet.final_conv.0.block.0.weight");
  EXPECT_EQ(names.in_file("mid_modules.0.residual_conv.bias"), "diffusion.unet.mid_modules.0.residual_conv.bias");
}

TEST_F(PolicyFiles, SizesAreThoseOfTheShapes) {
  const nn::Unet1dConfig all[] = {
      nn::tiny_unet1d(),
      {.action_dim = 7, .dims = {24}, .taps = 3, .step_channels = 4, .observation = 1},
      {.action_dim = 10, .dims = {8, 16, 32, 64}, .taps = 7, .step_channels = 10, .observation = 33, .scale = false}};
  for (const nn::Unet1dConfig& config : all) {
    write(made_up_tensors(config));
    EXPECT_EQ(read().network, config);
  }
}

// Counted in the issue's own words: convolutions and norms, FiLM, the time step's MLP.
TEST_F(PolicyFiles, ThePublishedSizesHaveAsManyParametersAsPublished) {
  std::int64_t sum = 0;
  for (const nn::PublishedTensor& tensor : nn::published_tensors({})) sum += tensor.elements();
  EXPECT_EQ(sum, 79'947'266);
}

TEST_F(PolicyFiles, WhatShapesDoNotSayIsInTheMetadataOrGivenOrTheDefault) {
  write(made_up_tensors(small_));
  EXPECT_EQ(read().notes, (std::vector<std::string>{"groups 8: the default, as the file does not say",
                                                    "horizon 16: the default, as the file does not say"}));
  const json told = {{"groups", 4}, {"horizon", 8}, {"scheduler", {{"num_train_timesteps", 50}}}, {"steps", 12}};
  write(made_up_tensors(small_), {{kMetadataKey, told.dump()}});
  PolicyFile policy = read();
  EXPECT_EQ(policy.network.groups, 4);
  EXPECT_EQ(policy.network.horizon, 8);
  EXPECT_EQ(policy.scheduler["num_train_timesteps"], 50);
  EXPECT_EQ(policy.steps, 12);
  EXPECT_TRUE(policy.notes.empty());
  policy = read({.groups = 2, .horizon = 32});
  EXPECT_EQ(policy.network.groups, 2);
  EXPECT_EQ(policy.network.horizon, 32);
}

TEST_F(PolicyFiles, OtherPartsAreCountedAndLeftAlone) {
  Tensors tensors = made_up_tensors(small_, {.prefix = "model."});
  for (const char* name :
       {"obs_encoder.a.weight", "obs_encoder.b.weight", "mask_generator._dummy", "_dummy_variable"}) {
    tensors[name] = zeros({2});
  }
  write(tensors, {{kMetadataKey, R"({"groups": 8, "horizon": 16})"}});
  EXPECT_EQ(read().notes, std::vector<std::string>{
                              "left alone: tensors, 1 of _dummy_variable, 1 of mask_generator, 2 of obs_encoder"});
}

TEST_F(PolicyFiles, OneOfTwoNetworksIsNotChosen) {
  Tensors tensors = made_up_tensors(small_, {.prefix = "ema_model."});
  tensors.merge(made_up_tensors(small_, {.prefix = "model."}));
  write(tensors);
  expect_refused("has two networks of a Diffusion Policy, 'ema_model.down_modules.0...' and 'model.down_modules.0...'");
  tensors.erase("model.final_conv.1.bias");  // of another one that is not complete
  write(tensors);
  EXPECT_EQ(read().weights, nn::made_up_weights(small_));
}

TEST_F(PolicyFiles, ActionsInTheNetworksUnitsAreSaidToBe) {
  Tensors tensors = made_up_tensors(small_, {.prefix = "diffusion.unet.", .lerobot = true});
  write(tensors);
  EXPECT_EQ(read().units,
            "observations and actions are in the network's units, as a rule normalised: the file has no "
            "normalizer");
  tensors["normalize_inputs.buffer_observation_state.mean"] = zeros({3});
  tensors["module.unnormalize_outputs.buffer_action.mean"] = zeros({2});
  write(tensors);
  EXPECT_NE(read().units.find("not applied: normalize_inputs, unnormalize_outputs"), std::string::npos);
  for (const char* field : {"obs", "action"}) {
    const int numbers = std::string(field) == "obs" ? 3 : 2;
    tensors[fmt::format("normalizer.params_dict.{}.scale", field)] = {{numbers}, std::vector<float>(numbers, 1)};
    tensors[fmt::format("normalizer.params_dict.{}.offset", field)] = zeros({numbers});
    write(tensors);
    const bool is_last = numbers == 2;
    EXPECT_EQ(read().units.starts_with("actions are in the network's units"), !is_last);
    EXPECT_EQ(read().units.empty(), is_last);
  }
}

// Flags and counters of an encoder have dtypes that no network here is read in.
TEST_F(PolicyFiles, ATensorOfAnotherDtypeIsLeftAloneUnlessItIsTheNetworks) {
  const std::string bias = "final_conv.1.bias";
  Tensors tensors = made_up_tensors(small_);
  tensors["obs_encoder.x"] = zeros({2});
  write(tensors);
  const std::string complete = contents(file_);
  const auto with_bool = [&](const std::string& name) {
    std::string text = complete;
    const auto at = text.find("\"F32\"", text.find('"' + name + '"'));
    text.replace(at, 5, "\"F9\" ");
    put(file_, text);
  };
  with_bool("obs_encoder.x");
  const PolicyFile policy = read();
  EXPECT_EQ(policy.weights, nn::made_up_weights(small_));
  EXPECT_EQ(policy.notes.back(), "left alone: tensors, 1 of obs_encoder");
  with_bool(bias);
  expect_refused("tensor '" + bias + "' is F9, which is not read here");
}

TEST_F(PolicyFiles, TheNormalizerIsRead) {
  Tensors tensors = made_up_tensors(small_, {.prefix = "model."});
  tensors["normalizer.params_dict.obs.scale"] = {{3}, {1, 2, 3}};
  tensors["normalizer.params_dict.obs.offset"] = {{3}, {4, 5, 6}};
  tensors["normalizer.params_dict.obs.input_stats.max"] = zeros({3});
  tensors["normalizer.params_dict.action.scale"] = {{2}, {4, 8}};
  tensors["normalizer.params_dict.action.offset"] = {{2}, {9, 10}};
  write(tensors);
  const PolicyFile policy = read();
  EXPECT_EQ(policy.observation.scale, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(policy.observation.offset, (std::vector<double>{4, 5, 6}));
  EXPECT_EQ(policy.action.scale,
            (std::vector<double>{1 / 4.0, 1 / 8.0}));  // the inverse: (normalised - offset) / scale
  EXPECT_EQ(policy.action.offset, (std::vector<double>{-9 / 4.0, -10 / 8.0}));
}

TEST_F(PolicyFiles, DamagedFilesAreRefused) {
  expect_refused("cannot be read");
  put(file_, "");
  expect_refused("empty");
  put(file_, std::string("PK\x03\x04", 4) + std::string(26, '\0') + "archive/data.pkl");
  expect_refused("is a pickle, as torch.save writes checkpoints: python3 -m ladder_torch.export");
  put(file_, "\x80\x02}q\x01X");
  expect_refused("is a pickle");
  put(file_, "it is a text");
  expect_refused("a text file");
  write({{"unet.weight", zeros({2})}});
  expect_refused(
      "has no network of a Diffusion Policy: none of its 1 tensors is named down_modules.0..., bare or after "
      "a prefix");
  write(made_up_tensors(small_));
  const std::string complete = contents(file_);
  for (const std::size_t size :
       {std::size_t{4}, std::size_t{9}, std::size_t{100}, complete.size() / 2, complete.size() - 1}) {
    put(file_, complete.substr(0, size));
    expect_refused("is not a whole safetensors file");
  }
  put(file_, complete + "x");
  expect_refused("1 bytes after its last tensor");
}

TEST_F(PolicyFiles, WrongTensorsAreNamed) {
  const auto changed = [&](const std::function<void(Tensors&)>& change, const std::string& says) {
    Tensors tensors = made_up_tensors(small_, {.prefix = "model."});
    change(tensors);
    write(tensors);
    expect_refused(says);
  };
  // Each of the network's tensors, when it is not there.
  for (const nn::PublishedTensor& tensor : nn::published_tensors(small_)) {
    const std::string name = "model." + tensor.name;
    if (name == "model.down_modules.1.0.blocks.0.block.0.weight") continue;  // that is a network of one level and more
    changed([&](Tensors& all) { all.erase(name); }, fmt::format("tensor '{}' is missing", name));
  }
  changed([](Tensors& all) { all.erase("model.down_modules.1.0.blocks.0.block.0.weight"); }, "are not the model's");
  changed([](Tensors& all) { all["model.mid_modules.2.blocks.0.block.0.weight"] = zeros({2}); },
          "tensor 'model.mid_modules.2.blocks.0.block.0.weight' is not the model's");
  changed([](Tensors& all) { all["model.local_cond_encoder.0.blocks.0.block.0.weight"] = zeros({2}); },
          "local conditioning is not supported");
  changed(
      [](Tensors& all) {
        all["model.mid_modules.0.blocks.0.block.0.weight"] = zeros({16, 16, 3});
      },
      "has shape [16, 16, 3] instead of [16, 16, 5]");
  changed(
      [](Tensors& all) {
        all["model.final_conv.1.weight"] = zeros({3, 8, 1});
      },
      "has shape [3, 8, 1] instead of [2, 8, 1]");
  changed(
      [](Tensors& all) {
        all["model.up_modules.0.2.conv.weight"] = zeros({8, 8, 3});
      },
      "has shape [8, 8, 3] instead of [8, 8, 4]");
  changed(
      [](Tensors& all) {
        all["model.down_modules.0.0.blocks.0.block.0.weight"] = zeros({8, 2});
      },
      "has shape [8, 2], which has to have 3 dimensions above 0");
  changed(
      [](Tensors& all) {
        all["model.down_modules.0.0.blocks.0.block.0.weight"] = zeros({8, 0, 5});
      },
      "dimensions above 0");
  changed([](Tensors& all) { all["model.diffusion_step_encoder.1.weight"] = zeros({8}); }, "2 dimensions above 0");
  changed(
      [](Tensors& all) {
        all["model.down_modules.0.0.cond_encoder.1.weight"] = zeros({12, 14});
      },
      "16 rows for scales and shifts, or 8 for shifts");
  changed(
      [](Tensors& all) {
        all["model.down_modules.0.0.cond_encoder.1.weight"] = zeros({16, 8});
      },
      "more than 8 columns");
  for (const float wrong : {NAN, INFINITY}) {
    changed([&](Tensors& all) { all["model.final_conv.1.bias"].values[1] = wrong; },
            "tensor 'model.final_conv.1.bias' has a number that is not finite");
  }
  const std::string scale = "normalizer.params_dict.action.scale", offset = "normalizer.params_dict.action.offset";
  changed([&](Tensors& all) { all[scale] = zeros({2}); }, "action.offset' is missing");
  changed([&](Tensors& all) { all[offset] = zeros({2}); }, "action.scale' is missing");
  changed([&](Tensors& all) { all[scale] = all[offset] = zeros({3}); }, "have 3 and 3 numbers, for 2");
  changed([&](Tensors& all) { all[scale] = all[offset] = zeros({1}); }, "have 1 and 1 numbers, for 2");
  changed([&](Tensors& all) { all[scale] = all[offset] = zeros({2}); }, "action.scale' has a zero");
  changed([&](Tensors& all) { all[scale] = all[offset] = {{2}, {1, NAN}}; }, "is not finite");
  changed(
      [&](Tensors& all) {
        all["normalizer.params_dict.obs.scale"] = all["normalizer.params_dict.obs.offset"] = zeros({4});
      },
      "have 4 and 4 numbers, for 6 or a divisor of that");
}

TEST_F(PolicyFiles, WrongMetadataIsRefused) {
  for (const auto& [text, says] :
       std::map<std::string, std::string>{{"{", "is no JSON object"},
                                          {"[1]", "is no JSON object"},
                                          {"8", "is no JSON object"},
                                          {R"({"groups": "8"})", "its groups \"8\" is not supported: a whole number"},
                                          {R"({"groups": 1.5})", "its groups 1.5 is not supported: a whole number"},
                                          {R"({"groups": 0})", "its groups 0 is not"},
                                          {R"({"steps": 0})", "its steps 0 is not"},
                                          {R"({"horizon": -16})", "its horizon -16 is not"},
                                          {R"({"horizon": 4294967312})", "its horizon 4294967312 is not"},
                                          {R"({"scheduler": )" + std::string(300'000, '['), "is nested deeper than"},
                                          {R"({"scheduler": "ddpm"})", "its scheduler is no JSON object"}}) {
    write(made_up_tensors(small_), {{kMetadataKey, text}});
    expect_refused(says);
  }
}

TEST(PolicySizes, WhatCannotBeIsRefusedWithWhatCould) {
  for (const auto& [config, says] : std::vector<std::pair<nn::Unet1dConfig, std::string>>{
           {{.horizon = 15}, "horizon 15: 3 levels halve it 2 times, so that it is a multiple of 4"},
           {{.horizon = 2}, "a multiple of 4"},
           {{.groups = 7}, "groups 7: they divide the channels of every level, 256, 512, 1024, as 1, 2, 4, 8, 16, 32"},
           {{.dims = {12, 24}, .groups = 4}, "a multiple of the last block's 8 groups, not 12"},
           {{.taps = 4}, "1, 3, 5 or 7, not 4"},
           {{.taps = 9}, "1, 3, 5 or 7, not 9"},
           {{.step_channels = 2}, "4 or more, not 2"},
           {{.step_channels = 7}, "an even number, not 7"},
           {{.observation = 0}, "numbers of an observation: 1 or more, not 0"},
           {{.dims = {}}, "1 to 8 levels, not 0"},
           {{.dims = {16, 8}}, "up_modules.0.0 has a concatenation for its residual, which is not supported"}}) {
    const std::string message = message_of<UsageError>([&] { nn::published_tensors(config); });
    EXPECT_NE(message.find(says), message.npos) << message;
  }
}

// diffusers' DDPMScheduler draws no noise at time step 0, its DDIMScheduler none with eta 0.
TEST(Schedulers, StepsThatDrawNoise) {
  const auto drawn = [](const char* kind, double eta, std::vector<int> visited) {
    std::vector<std::string> notes;
    diffusion::SchedulerConfig config = scheduler_of(json::object(), kind, notes);
    config.eta = eta;
    return SamplingSchedule(config, std::move(visited)).num_drawn();
  };
  EXPECT_EQ(drawn("ddpm", 0, {99, 50, 0}), 2);
  EXPECT_EQ(drawn("ddpm", 0, {99, 50, 1}), 3);
  EXPECT_EQ(drawn("ddim", 0, {66, 33, 0}), 0);
  EXPECT_EQ(drawn("ddim", 0.5, {66, 33, 0}), 3);
  EXPECT_FALSE(message_of<UsageError>([&] { drawn("ddpm", 0, {}); }).empty());
  EXPECT_FALSE(message_of<UsageError>([&] { drawn("ddpm", 0, {100, 0}); }).empty());
}

TEST(Schedulers, WhatCannotBeIsRefused) {
  const auto made = [](const json& fields, std::optional<int> count = {}) {
    std::vector<std::string> notes;
    return SamplingSchedule(scheduler_of(fields, "", notes), count);
  };
  EXPECT_EQ(made(json::object()).str(), "100 ddpm steps of 100");
  EXPECT_EQ(made({{"_class_name", "DDIMScheduler"}}, 16).str(), "16 ddim steps of 100");
  EXPECT_FALSE(made({{"_class_name", "DDIMScheduler"}}, 16).noisy());
  for (const int count : {0, -1, 101}) {
    EXPECT_NE(message_of<UsageError>([&] { made(json::object(), count); }).find("from 1 to 100"), std::string::npos);
  }
  for (const json& fields :
       {json{{"beta_schedule", "cubic"}}, json{{"prediction_type", "noise"}}, json{{"_class_name", "PNDMScheduler"}},
        json{{"thresholding", true}}, json{{"variance_type", "learned"}}, json{{"num_train_timesteps", "many"}},
        json{{"num_train_timesteps", 0}}}) {
    EXPECT_FALSE(message_of<UsageError>([&] { made(fields); }).empty()) << fields;
  }
}

}  // namespace
}  // namespace ladder::denoise

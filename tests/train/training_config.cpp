// TrainingConfig: refused values, the round trip through text, learning rates and time steps.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "nn/models/unet2d_config.h"
#include "tests/files.h"
#include "train/training_config.h"

namespace ladder::train {
namespace {

using ladder::test::message_of;

TEST(TrainingConfigs, WhatCannotBeTrainedIsRefused) {
  const TrainingConfig good{.model = nn::unet2d_config("tiny")};
  good.check();
  const auto refused = [&](const auto& change) {
    TrainingConfig config = good;
    change(config);
    return !message_of<UsageError>([&] { config.check(); }).empty();
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(refused([](TrainingConfig& c) { c.steps = 0; }));
  EXPECT_TRUE(refused([](TrainingConfig& c) { c.batch = 0; }));
  EXPECT_TRUE(refused([](TrainingConfig& c) { c.micro_batches = 3; }));
  EXPECT_TRUE(refused([](TrainingConfig& c) { c.learning_rate = 0; }));
  EXPECT_TRUE(refused([](TrainingConfig& c) { c.learning_rate = kNan; }));
  EXPECT_TRUE(refused([](TrainingConfig& c) { c.clip = kNan; }));
  EXPECT_TRUE(refused([](TrainingConfig& c) { c.weight_decay = kNan; }));
  EXPECT_TRUE(refused([](TrainingConfig& c) { c.beta1 = 1; }));
  EXPECT_TRUE(refused([](TrainingConfig& c) { c.eps = 0; }));
  EXPECT_TRUE(refused([](TrainingConfig& c) { c.ema_rate = 1; }));
  EXPECT_TRUE(refused([](TrainingConfig& c) { c.warm_up = -1; }));
  EXPECT_TRUE(refused([](TrainingConfig& c) { c.dtype = Dtype::f16; }));
}

// A checkpoint's configuration is used with exactly its numbers and words, or refused.
TEST(TrainingConfigs, NumbersAndWordsThatAreNotOursAreNamed) {
  const nlohmann::json good = TrainingConfig{.model = nn::unet2d_config("tiny")};
  const auto refused = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json changed = good;
    (changed["model"].contains(key) ? changed["model"] : changed)[key] = value;
    return message_of<UsageError>([&] { changed.get<TrainingConfig>(); });
  };
  EXPECT_NO_THROW(good.get<TrainingConfig>());
  const std::vector<std::tuple<const char*, nlohmann::json, const char*>> wrong = {
      {"dtype", "fp8", "dtype 'fp8' is not supported; there are: bf16, fp32, tf32"},
      {"decay", "exp", "decay 'exp' is not supported; there are: constant, linear, cosine"},
      {"schedule", "x", "schedule 'x' is not supported; there are: linear, cosine"},
      {"batch", 1.5, "batch 1.5 is not supported: a whole number from 1 to 2147483647 is right"},
      {"batch", 4294967297, "batch 4294967297 is not supported: a whole number from 1 to 2147483647 is right"},
      {"batch", true, "batch true"},
      {"batch", "2", "batch \"2\""},
      {"steps", 0, "steps 0"},
      {"seed", -1, "seed -1"},
      {"seed", 1.9, "seed 1.9"},
      {"flip", 1, "flip 1 is not supported: true or false is right"},
      {"learning_rate", nullptr, "learning_rate null is not supported: a number is right"},
      {"name", 3, "name 3 is not supported: a word is right"},
      {"channels", 4294967328, "channels 4294967328"},
      {"channels", 64.9, "channels 64.9"},
      {"channels", 1 << 20, "channels 1048576: 1 to 16384 are right"},
      {"res_blocks", 1000000, "res-blocks 1000000: 1 to 1000 are right"},
      {"channel_mult", {1, 2.5}, "channel_mult 2.5"},
      {"channel_mult", std::vector<int>(1000, 1), "a list of at most 12 numbers"},
      {"attention_resolutions", "4", "attention_resolutions \"4\""},
      {"model", 5, "the model's configuration is 5: a JSON object is right"},
  };
  for (const auto& [key, value, words] : wrong) {
    const std::string message = refused(key, value);
    EXPECT_NE(message.find(words), std::string::npos) << key << ": " << message;
  }
  for (const auto& [key, value] : good.items()) {
    nlohmann::json less = good;
    less.erase(key);
    const std::string message = message_of<UsageError>([&] { less.get<TrainingConfig>(); });
    EXPECT_EQ(message, "the training's " + key + " is missing");
  }
}

TEST(TrainingConfigs, ComeBackFromTheirText) {
  TrainingConfig config{.name = "mine",
                        .model = nn::unet2d_config("tiny"),
                        .dtype = Dtype::tf32,
                        .steps = 3,
                        .batch = 6,
                        .micro_batches = 2,
                        .learning_rate = 0.1,
                        .warm_up = 4,
                        .decay = Decay::cosine,
                        .beta1 = 0.5,
                        .beta2 = 0.75,
                        .eps = 1e-7,
                        .weight_decay = 0.01,
                        .clip = 0.3,
                        .ema_rate = 0.9,
                        .ema_ramp = false,
                        .betas = diffusion::Betas::cosine,
                        .flip = true,
                        .overfit_batch = true,
                        .seed = 18446744073709551615u};
  const auto text = nlohmann::json(config).dump();
  const auto back = nlohmann::json::parse(text).get<TrainingConfig>();
  EXPECT_EQ(back.model, config.model);
  EXPECT_EQ(nlohmann::json(back).dump(), text);
  // Each key's text must show its changed value.
  const nlohmann::json plain = TrainingConfig{}, json = config;
  for (const auto& [key, value] : json.items()) EXPECT_NE(value, plain.at(key)) << key;
}

TEST(TrainingConfigs, TheLearningRateFollowsItsSchedule) {
  TrainingConfig config;
  config.learning_rate = 8;
  config.warm_up = 4;
  config.steps = 12;
  EXPECT_EQ(learning_rate(config, 1), 2);
  EXPECT_EQ(learning_rate(config, 4), 8);
  EXPECT_EQ(learning_rate(config, 12), 8);
  config.decay = Decay::linear;
  EXPECT_EQ(learning_rate(config, 5), 8);
  EXPECT_EQ(learning_rate(config, 9), 4);
  EXPECT_EQ(learning_rate(config, 12), 1);
  EXPECT_EQ(learning_rate(config, 100), 0);
  config.decay = Decay::cosine;
  EXPECT_EQ(learning_rate(config, 5), 8);
  EXPECT_NEAR(learning_rate(config, 9), 4, 1e-12);
  EXPECT_NEAR(learning_rate(config, 100), 0, 1e-12);

  config.ema_rate = 0.99;
  EXPECT_NEAR(std::pow(ema_rate(config, 200), 10), 0.5, 1e-12);  // half of it comes from the last 5 %
  EXPECT_EQ(ema_rate(config, 1000000), 0.99);
  config.ema_ramp = false;
  EXPECT_EQ(ema_rate(config, 1), 0.99);
}

TEST(TrainingConfigs, TimeStepsAreUniformAndFollowFromSeedStepAndImage) {
  std::vector<int> counts(10);
  std::set<std::int32_t> seen;
  constexpr int kSteps = 1000, kImages = 10;
  for (int step = 1; step <= kSteps; ++step) {
    for (int i = 0; i < kImages; ++i) {
      const std::int32_t t = time_step(3, step, i);
      ASSERT_GE(t, 0);
      ASSERT_LT(t, diffusion::kTimesteps);
      ++counts[t / 100];
      seen.insert(t);
    }
  }
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);  // five standard deviations
  EXPECT_GT(seen.size(), 980u);                                  // all but a few in 10,000 draws; 0 and 999 among them
  EXPECT_TRUE(seen.contains(0) || seen.contains(1));
  EXPECT_EQ(time_step(3, 5, 7), time_step(3, 5, 7));
  int equal = 0;
  for (int i = 0; i < 100; ++i) {
    equal += time_step(3, 5, i) == time_step(4, 5, i);
    equal += time_step(3, 5, i) == time_step(3, 6, i);
    equal += time_step(3, 5, i) == time_step(3, 5 + i, 0) && i > 0;
  }
  EXPECT_LT(equal, 10);
}

}  // namespace
}  // namespace ladder::train

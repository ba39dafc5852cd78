// What a model is made of before anything runs: configurations, layers, parameters and where they lie.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/train/files.h"
#include "train/architecture.h"
#include "train/config.h"
#include "train/parameters.h"
#include "train/training.h"

namespace ladder::train {
namespace {

using ladder::test::message_of;

testing::AssertionResult has(const std::string& text, const std::string& words) {
  if (text.find(words) != text.npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << text << "' says nothing of '" << words << "'";
}

TEST(ModelConfigs, ListsAreRead) {
  EXPECT_EQ(parse_list("1,2,3,4", "--channel-mult"), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(parse_list("16", "--attention-resolutions"), std::vector<int>{16});
  EXPECT_EQ(parse_list("", "--attention-resolutions"), std::vector<int>{});
  for (const char* text : {"1,2,", ",1", "1,,2", "1;2", "1, 2", "one", "1.5", "99999999999", ","}) {
    const std::string message = message_of<UsageError>([&] { parse_list(text, "--channel-mult"); });
    EXPECT_TRUE(has(message, fmt::format("--channel-mult is a list of numbers such as 1,2,3, not '{}'", text)));
  }
}

TEST(ModelConfigs, WhatCannotBeBuiltIsRefused) {
  const ModelConfig good = model_config("tiny");
  good.check();
  const auto refusal = [&](const auto& change) {
    ModelConfig config = good;
    change(config);
    return message_of<UsageError>([&] { config.check(); });
  };
  EXPECT_TRUE(has(refusal([](ModelConfig& c) { c.channel_mult = {}; }), "such as 1,2,3,4"));
  EXPECT_TRUE(has(refusal([](ModelConfig& c) { c.channel_mult = {1, 0}; }), "such as 1,2,3,4"));
  EXPECT_TRUE(has(refusal([](ModelConfig& c) { c.res_blocks = 0; }), "at least 1"));
  EXPECT_TRUE(has(refusal([](ModelConfig& c) { c.image_size = 9; }), "9 pixels a side cannot be halved 1 times"));
  EXPECT_TRUE(has(refusal([](ModelConfig& c) { c.head_size = 48; }), "32 or 64, not 48"));
  EXPECT_TRUE(has(refusal([](ModelConfig& c) { c.channels = 48; }), "level 0 has 48 channels"));
  EXPECT_TRUE(has(refusal([](ModelConfig& c) { c.attention_resolutions = {2}; }), "no level has that size"));
  EXPECT_TRUE(has(refusal([](ModelConfig& c) { c.attention_resolutions = {64}; }), "at most 32x32"));
  EXPECT_TRUE(has(refusal([](ModelConfig& c) { c.image_size = 128; }), "no level has that size"));
  EXPECT_TRUE(has(refusal([](ModelConfig& c) {
                    c.image_size = 128;
                    c.attention_resolutions = {};
                  }),
                  "give more levels"));
  EXPECT_TRUE(has(refusal([](ModelConfig& c) {
                    c.channels = 32;
                    c.channel_mult = {2, 3};
                    c.head_size = 64;
                  }),
                  "96 channels are no multiple of the head size 64"));
  EXPECT_TRUE(has(message_of<UsageError>([] { model_config("unet"); }), "there are: unet64, tiny"));
}

TEST(TrainingConfigs, WhatCannotBeTrainedIsRefused) {
  const TrainingConfig good{.model = model_config("tiny")};
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

TEST(TrainingConfigs, ComeBackFromTheirText) {
  TrainingConfig config{.name = "mine",
                        .model = model_config("tiny"),
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
  // And no key says the same for another value.
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
  EXPECT_NEAR(std::pow(ema_rate(config, 200), 10), 0.5, 1e-12);  // half of it is of the last twentieth
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

// The first level's multiplier counts from the first convolution on, as in guided-diffusion.
TEST(Architectures, TheFirstConvolutionHasTheFirstLevelsChannels) {
  ModelConfig config = model_config("tiny");
  config.channels = 16;
  config.channel_mult = {2, 4};
  const Parameters parameters(config);
  EXPECT_EQ(parameters["input_blocks.0.0.weight"].shape, (std::vector<std::int64_t>{32, 3, 3, 3}));
  EXPECT_EQ(parameters["input_blocks.1.0.in_layers.0.weight"].shape, std::vector<std::int64_t>{32});
  EXPECT_EQ(parameters["time_embed.0.weight"].shape, (std::vector<std::int64_t>{64, 16}));
  EXPECT_EQ(parameters["out.2.weight"].shape, (std::vector<std::int64_t>{3, 32, 3, 3}));
}

TEST(Architectures, EachUpBlockTakesAnOutputOfTheWayDown) {
  for (const char* name : {"unet64", "tiny"}) {
    const Architecture net{model_config(name)};
    ASSERT_EQ(net.up.size(), net.down.size());
    int channels = net.middle.out();
    for (std::size_t i = 0; i < net.up.size(); ++i) {
      EXPECT_EQ(net.up[i].skip, net.down[net.down.size() - 1 - i].out());
      EXPECT_EQ(net.up[i].layers.front().in, channels + net.up[i].skip);
      channels = net.up[i].out();
    }
  }
}

TEST(ModelParameters, ThoseOfUnet64AreGuidedDiffusions) {
  const Parameters parameters(model_config("unet64"));
  EXPECT_EQ(parameters.count(), 20494211);
  EXPECT_EQ(parameters.all().size(), 326u);
  std::set<std::string> zeroed;
  for (const Parameter& p : parameters.all()) {
    if (p.start != Parameter::Start::zeros || !p.name.ends_with(".weight")) continue;
    zeroed.insert(p.name.substr(0, p.name.size() - std::string(".weight").size()));
  }
  EXPECT_EQ(zeroed.size(), 34u);
  EXPECT_TRUE(zeroed.contains("out.2"));
  EXPECT_EQ(std::ranges::count_if(zeroed, [](const auto& name) { return name.ends_with(".out_layers.3"); }), 22);
  EXPECT_EQ(std::ranges::count_if(zeroed, [](const auto& name) { return name.ends_with(".proj_out"); }), 11);

  const auto shape = [&](const char* name) { return parameters[name].shape; };
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(parameters.all().front().name, "time_embed.0.weight");
  EXPECT_EQ(parameters.all().back().name, "out.2.bias");
  EXPECT_EQ(shape("time_embed.0.weight"), (Shape{256, 64}));
  EXPECT_EQ(shape("input_blocks.4.0.skip_connection.weight"), (Shape{128, 64, 1, 1}));
  EXPECT_EQ(shape("input_blocks.7.1.qkv.weight"), (Shape{576, 192, 1}));
  EXPECT_EQ(shape("input_blocks.11.1.proj_out.weight"), (Shape{256, 256, 1}));
  EXPECT_EQ(shape("middle_block.1.norm.weight"), Shape{256});
  EXPECT_EQ(shape("output_blocks.0.0.in_layers.2.weight"), (Shape{256, 512, 3, 3}));
  EXPECT_EQ(shape("output_blocks.11.0.in_layers.2.weight"), (Shape{64, 128, 3, 3}));
  EXPECT_EQ(shape("output_blocks.11.0.emb_layers.1.weight"), (Shape{64, 256}));
  EXPECT_THROW(parameters["input_blocks.3.0.op.weight"], Failure);  // conv_resample is off
  EXPECT_THROW(parameters["out.3.weight"], Failure);
}

TEST(ModelParameters, LieApartAlignedAndInTheirRanges) {
  for (const char* name : {"unet64", "tiny"}) {
    const Parameters parameters(model_config(name));
    std::vector<const Parameter*> order;
    for (const Parameter& p : parameters.all()) order.push_back(&p);
    std::ranges::sort(order, {}, &Parameter::begin);
    std::int64_t end = 0;
    for (const Parameter* p : order) {
      EXPECT_EQ(p->begin % kAlignment, 0) << p->name;
      EXPECT_GE(p->begin, end) << p->name;
      end = p->begin + p->elements();
      using Range = Parameter::Range;
      const Range range = p->begin < parameters.matrices_end()    ? Range::matrices
                          : p->begin < parameters.embedding_end() ? Range::embedding
                                                                  : Range::vectors;
      EXPECT_EQ(range, p->range) << p->name;
    }
    EXPECT_GE(parameters.size(), end);
    // A block's rows of the one matrix of all blocks are its own layer's weights and bias.
    for (const Parameter& p : parameters.all()) {
      const auto at = p.name.find(".emb_layers.1.");
      if (at == std::string::npos) continue;
      const std::int64_t row = parameters.embedding_row(p.name.substr(0, at));
      const std::int64_t columns = model_config(name).embedding_channels();
      EXPECT_EQ(p.begin, p.name.ends_with(".weight") ? parameters.embedding_weights_begin() + row * columns
                                                     : parameters.embedding_bias_begin() + row)
          << p.name;
      EXPECT_LE(row + p.shape[0], parameters.embedding_rows());
    }
  }
}

TEST(ModelParameters, BeginAsPyTorchWouldDrawThemFromTheSeed) {
  const Parameters parameters(model_config("tiny"));
  const std::vector<float> values = parameters.initial(3);
  EXPECT_EQ(values, parameters.initial(3));
  EXPECT_NE(values, parameters.initial(4));
  std::vector<bool> covered(values.size());
  for (const Parameter& p : parameters.all()) {
    const auto begin = values.begin() + p.begin;
    const auto [least, most] = std::minmax_element(begin, begin + p.elements());
    std::fill_n(covered.begin() + p.begin, p.elements(), true);
    if (p.start != Parameter::Start::uniform) {
      const float wanted = p.start == Parameter::Start::ones ? 1 : 0;
      EXPECT_EQ(*least, wanted) << p.name;
      EXPECT_EQ(*most, wanted) << p.name;
      continue;
    }
    // All of the range, from end to end and with the variance of a uniform distribution, a third of its square.
    const double bound = 1 / std::sqrt(static_cast<double>(p.fan_in));
    EXPECT_GE(*least, -bound) << p.name;
    EXPECT_LE(*most, bound) << p.name;
    if (p.elements() < 1000) continue;
    EXPECT_LT(*least, -0.97 * bound) << p.name;
    EXPECT_GT(*most, 0.97 * bound) << p.name;
    double squares = 0;
    for (auto value = begin; value != begin + p.elements(); ++value) squares += double{*value} * *value;
    EXPECT_NEAR(squares / static_cast<double>(p.elements()), bound * bound / 3, bound * bound / 20) << p.name;
  }
  EXPECT_EQ(parameters["input_blocks.1.0.in_layers.2.bias"].fan_in, 64 * 9);  // a bias has its weight's
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!covered[i]) {
      ASSERT_EQ(values[i], 0.0f) << i;
    }
  }
}

}  // namespace
}  // namespace ladder::train
